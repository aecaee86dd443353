"""Free pages of the heap: they are given back, and not at every turn."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
# Blocks too small to be mapped on their own, the last of which holds the end of the heap.
FREES_MEMORY = """
import sys
from pathlib import Path
from workspace.memory import HeapTrimmer

def resident_mib():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 >> 20

heap = HeapTrimmer(every_s=float(sys.argv[1]))
blocks = [bytes(60_000) for _ in range(3_000)]
del blocks[:-1]
before = resident_mib()
heap.between_rounds()
print(before - resident_mib())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="no glibc")
@pytest.mark.parametrize(("every_s", "is_given_back"), [(0, True), (3600, False)])
def test_free_pages_are_given_back_when_their_time_has_come(
    every_s: int, is_given_back: bool
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FREES_MEMORY, str(every_s)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    assert (int(done.stdout) > 100) is is_given_back

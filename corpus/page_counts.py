"""How many pages PDFs have, counted without reading them: for forecasts.

Counting runs in a child process (`python -m corpus.page_counts`), since a broken file may crash the
library or hang it; such a file has no count, and a fresh child goes on behind it. Paths go in and
counts come out one JSON line each. Page trees may lie: the count is what the file claims.
"""

from __future__ import annotations

import json
import os
import resource
import select
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

SECONDS_A_FILE: Final = 10.0
MEMORY_MB: Final = 2048
# What a file claims may be absurd.
MAX_PAGES: Final = 100_000


def count_pages(paths: Sequence[Path]) -> dict[Path, int]:
    """Pages by path; files that cannot be counted are left out."""
    counted: dict[Path, int] = {}
    left = list(paths)
    while left:
        done = 0
        for path, n_pages in zip(left, _count_until_death(left), strict=False):
            done += 1
            if n_pages is not None:
                counted[path] = min(n_pages, MAX_PAGES)
        # The one at which the child died is not tried again.
        left = left[done + 1 :]
    return counted


def _count_until_death(paths: Sequence[Path]) -> Iterator[int | None]:
    root = str(Path(__file__).resolve().parent.parent)
    with subprocess.Popen(
        [sys.executable, "-m", "corpus.page_counts"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": root},
        text=True,
    ) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            for path in paths:
                try:
                    child.stdin.write(json.dumps(str(path)) + "\n")
                    child.stdin.flush()
                except BrokenPipeError:
                    return
                ready, _, _ = select.select([child.stdout], [], [], SECONDS_A_FILE)
                line = child.stdout.readline() if ready else ""
                if not line:
                    return
                yield json.loads(line)
        finally:
            child.kill()


def _count(path: str) -> int | None:
    import pypdfium2

    try:
        with pypdfium2.PdfDocument(path) as document:
            return len(document)
    except (pypdfium2.PdfiumError, OSError, ValueError):
        return None


def main() -> int:
    """Answer until stdin closes."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MB << 20, MEMORY_MB << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for line in sys.stdin:
        print(json.dumps(_count(json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A reader sees the old file or the new one, whatever happens to the writer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from workspace import publish

WRITER = """
import sys
from pathlib import Path
from workspace import publish
target = Path(sys.argv[1])
number = 0
while True:
    number += 1
    publish.write_bytes(target, str(number % 10).encode() * 3_000_000)
"""


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "a.json"
    publish.write_json(target, {"old": 1})
    with pytest.raises(RuntimeError), publish.atomic_path(target) as path:
        path.write_text("half of")
        raise RuntimeError("disk gone")
    assert target.read_text() == '{\n  "old": 1\n}\n'
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "model"
    for content in ("one", "two"):
        with publish.atomic_directory(target) as folder:
            (folder / content).write_text(content)
    assert [p.name for p in target.iterdir()] == ["two"]
    assert [p.name for p in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("delay_s", [0.05, 0.21, 0.4])
def test_kill_9_never_leaves_a_torn_file(tmp_path: Path, delay_s: float) -> None:
    target = tmp_path / "shard"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(target)])
    deadline = time.monotonic() + 60
    while not target.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(delay_s)
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    data = target.read_bytes()
    assert len(data) == 3_000_000
    assert len(set(data)) == 1
    publish.sweep_temporary(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["shard"]

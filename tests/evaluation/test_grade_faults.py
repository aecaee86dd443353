"""Faults of the machine while answers are graded: kills, full disks, missing and strange tools."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from scoring_inputs import STEP, STEP_RIGHT, STEP_SET, STEP_WRONG, write_step_benchmark
from small_disk import fill, mounted

from evaluation.verifiers import verify
from evaluation.verifiers.verilog import Golden, record_golden

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)

ANSWERS = 60


class Command:
    """The grading command as a process of its own."""

    def __init__(self, folder: Path, answers: int = ANSWERS) -> None:
        self.folder = folder
        self.benchmark = write_step_benchmark(folder / "dataset")
        self.given = folder / "answers.jsonl"
        rows = [
            {
                "task_id": STEP,
                "sample": i,
                "answer": f"{(STEP_RIGHT, STEP_WRONG)[i % 2]}// {i}\n",
            }
            for i in range(answers)
        ]
        self.given.write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.cache = folder / "cache"
        self.out = folder / "verdicts.jsonl"

    def start(self, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                sys.executable, "-m", "evaluation.grade",
                "--benchmark", f"{STEP_SET}={self.benchmark}",
                "--answers", str(self.given), "--out", str(self.out), "--cache", str(self.cache),
                "--workers", "2",
            ],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )  # fmt: skip

    def run(self, **environment: str) -> tuple[int, str]:
        """Exit code, and what it said on stderr."""
        process = self.start(**environment)
        _, said = process.communicate(timeout=300)
        return process.returncode, said

    def verdicts(self) -> list[str]:
        return [json.loads(line)["verdict"] for line in self.out.read_text().splitlines()]


def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    command = Command(tmp_path)
    killed = 0
    while killed < 3:
        process = command.start()
        before = _size(command.out)
        while _size(command.out) <= before and process.poll() is None:
            time.sleep(0.01)
        if process.poll() is not None:
            break  # it was quicker than we are
        process.send_signal(signal.SIGKILL)
        process.communicate()
        killed += 1
    assert killed
    kept = [line for line in command.out.read_bytes().split(b"\n")[:-1] if line]
    assert kept, "verdicts are written as they come"
    judged = {path.name: path.stat().st_mtime_ns for path in command.cache.rglob("*.json")}
    assert command.run() == (0, "")
    assert command.verdicts() == ["pass", "mismatch"] * (ANSWERS // 2)
    assert set(kept) <= set(command.out.read_bytes().split(b"\n"))
    for path in command.cache.rglob("*.json"):  # nothing that was kept is judged again
        assert judged.get(path.name, path.stat().st_mtime_ns) == path.stat().st_mtime_ns
    other = Command(tmp_path / "uninterrupted")
    assert other.run()[0] == 0
    assert other.out.read_bytes() == command.out.read_bytes()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB, where root may mount one."""
    with mounted(tmp_path / "small", 256) as place:
        yield place


@pytest.mark.parametrize("what", ["out", "cache"])
def test_a_full_disk_is_named_and_the_run_goes_on_later(
    tmp_path: Path, small_disk: Path, what: str
) -> None:
    command = Command(tmp_path, answers=4)
    setattr(command, what, small_disk / what)
    filler = fill(small_disk)
    code, said = command.run()
    assert code == 1
    assert "No space left on device" in said
    assert str(small_disk) in said
    assert "Traceback" not in said
    filler.unlink()
    assert command.run()[0] == 0
    assert command.verdicts() == ["pass", "mismatch"] * 2


@pytest.mark.parametrize("room", [0, 1, 3, 10])
def test_a_full_temporary_folder_is_no_verdict(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """With room for nothing, or for a few pages: some steps then work and others do not."""
    table = {
        "columns": ["a", "b"],
        "rows": [["x", 1], ["y", 2]],
        "program": "SELECT b FROM t WHERE a = 'x'",
    }
    golden = record_golden(STEP_RIGHT, "TopModule")
    assert isinstance(golden, Golden)
    monkeypatch.setattr(tempfile, "tempdir", str(small_disk))
    filler = fill(small_disk)
    os.truncate(filler, filler.stat().st_size - 4096 * room)
    found = verify("verilog_sim", golden.ground_truth(), STEP_RIGHT)
    assert (found.outcome, found.score) == ("infra:disk", None)
    found = verify("table_program", json.dumps(table), table["program"])
    assert found.outcome.startswith("infra:") or (found.passed and room), found
    filler.unlink()
    assert verify("table_program", json.dumps(table), table["program"]).passed


def _tools(folder: Path, *without: str) -> str:
    """A PATH with the sandbox's and the simulator's programs, but for `without`."""
    folder.mkdir()
    for name in ("iverilog", "vvp", "sh", "bwrap", "prlimit", "true", "git"):
        found = shutil.which(name)
        if found and name not in without:
            (folder / name).symlink_to(found)
    return str(folder)


def test_a_missing_simulator_is_named(tmp_path: Path) -> None:
    command = Command(tmp_path, answers=1)
    code, said = command.run(PATH=_tools(tmp_path / "bin", "iverilog"))
    assert code == 2
    assert "apt install iverilog" in said
    assert "Traceback" not in said
    assert not command.out.exists()


_FAKE = """#!/bin/sh
[ "$1" = -V ] && {{ echo "Icarus Verilog version {version} (stable)"; exit 0; }}
{rest}
"""


@pytest.mark.parametrize(
    ("version", "rest", "said"),
    [
        ("12.0", "exit 1", "cannot compile an empty module"),
        ("12.0", 'while [ "$1" != -o ]; do shift; done; echo : > "$2"', "cannot compile an empty"),
        ("12.0", 'case $* in *-B*) exit;; esac; exec {real} "$@"', "gives its compiler no sett"),
        ("12.0", 'case $* in *-E*) exit 1;; esac; exec {real} "$@"', "cannot run a counter"),
        ("10.3", "exec {real} \"$@\"", "Icarus Verilog 10.3"),
        ("13.0", "exec {real} \"$@\"", "Icarus Verilog 13.0"),
        ("from the vendor", "exec {real} \"$@\"", "version"),
    ],
    ids=["broken", "empty", "another_inside", "no_preprocessor", "too_old", "too_new", "strange"],
)  # fmt: skip
def test_a_strange_simulator_is_named_and_scores_nothing(
    tmp_path: Path, version: str, rest: str, said: str
) -> None:
    command = Command(tmp_path, answers=1)
    path = _tools(tmp_path / "bin", "iverilog")
    fake = Path(path) / "iverilog"
    fake.write_text(_FAKE.format(version=version, rest=rest.format(real=shutil.which("iverilog"))))
    fake.chmod(0o755)
    code, stderr = command.run(PATH=f"{path}:/bin")
    assert code in (1, 2)
    assert said in stderr
    assert "Traceback" not in stderr
    assert not command.out.exists()

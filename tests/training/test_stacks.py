"""Where a rank stands, told from outside and by itself; heartbeats read back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from training.cluster import stacks
from training.cluster.heartbeat import (
    BEAT_VARIABLE,
    RING,
    STACK_VARIABLE,
    Beat,
    BeatReader,
    Heartbeat,
    Section,
)

SOURCE = """
import time
from training.cluster import heartbeat
beat = heartbeat.of_this_rank()
beat.section(heartbeat.Section.STEP)
def waits_for_a_file_system():
    time.sleep(600)
waits_for_a_file_system()
"""


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], BeatReader]]:
    reader = BeatReader(tmp_path / "beat")
    process = subprocess.Popen(
        [sys.executable, "-c", SOURCE],
        env={
            **os.environ,
            BEAT_VARIABLE: str(reader.path),
            STACK_VARIABLE: str(tmp_path / "stacks.log"),
        },
    )
    deadline = time.monotonic() + 60
    while (said := reader.read()) is None or said.section is not Section.STEP:
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    yield process, reader
    process.kill()
    process.wait()


def shown(process: subprocess.Popen[bytes], own_file: Path) -> stacks.Stack:
    """The rank may not have entered the function yet."""
    deadline = time.monotonic() + 30
    while True:
        told = stacks.read_stack(process.pid, own_file)
        if "waits_for" in "".join(told.frames) or time.monotonic() > deadline:
            return told
        time.sleep(0.1)


def test_the_innermost_function_comes_first(
    rank: tuple[subprocess.Popen[bytes], BeatReader], tmp_path: Path
) -> None:
    told = shown(rank[0], tmp_path / "stacks.log")
    assert told.frames[0].startswith("waits_for_a_file_system (")
    assert told.frames[-1].startswith("<module>")


def test_a_rank_tells_itself_where_nobody_may_look(
    rank: tuple[subprocess.Popen[bytes], BeatReader],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")  # py-spy lies beside it
    told = shown(rank[0], tmp_path / "stacks.log")
    assert told.source == "faulthandler"
    assert told.frames[0].startswith("waits_for_a_file_system (")


def test_a_rank_that_listens_to_no_request_is_not_killed_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    other = subprocess.Popen(["sleep", "60"])
    told = stacks.read_stack(other.pid, tmp_path / "stacks.log")
    assert told.frames == () and "listens to no request" in told.source
    assert other.poll() is None
    other.send_signal(signal.SIGKILL)
    other.wait()


def test_steps_are_kept_until_they_are_read(tmp_path: Path) -> None:
    reader = BeatReader(tmp_path / "beat")
    assert reader.read() is None
    beat = Heartbeat(reader.path)
    for number in range(1, RING + 11):
        beat.step(number, number / 10)
    said = reader.read()
    assert isinstance(said, Beat)
    assert (said.section, said.step, said.changes) == (Section.STEP, RING + 10, RING + 10)
    assert said.steps == tuple((number, number / 10) for number in range(11, RING + 11))
    assert abs(said.since - time.monotonic()) < 60
    reader.close()


def test_a_rank_without_an_agent_beats_into_the_void() -> None:
    beat = Heartbeat(None)
    beat.section(Section.CHECKPOINT)
    beat.step(1, 0.5)

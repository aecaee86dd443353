"""The node agent with real rank processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

SHOW = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"


def start_agent(
    folder: Path, *command: str, nodes: int = 1, processes: int = 2, node: int = 0
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            sys.executable, "-m", "training.cluster.node_agent", "--attempt-dir", str(folder),
            "--nodes", str(nodes), "--processes", str(processes), "--", *command,
        ],
        env={**os.environ, "SLURM_NODEID": str(node), "SLURMD_NODENAME": f"n{node}"},
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def run_agent(folder: Path, *command: str, **layout: int) -> int:
    return start_agent(folder, *command, **layout).wait(60)


def log_of(folder: Path, rank: int) -> str:
    return (folder / "logs" / f"rank-{rank:04d}.log").read_text()


def first_failure(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "first-failure.json").read_text())
    return record


def await_line(folder: Path, rank: int, text: str) -> None:
    deadline = time.monotonic() + 30
    log = folder / "logs" / f"rank-{rank:04d}.log"
    while not log.exists() or text not in log.read_text():
        assert time.monotonic() < deadline, f"rank {rank} never said {text!r}"
        time.sleep(0.02)


def test_ranks_get_their_place_in_the_job(tmp_path: Path) -> None:
    assert run_agent(tmp_path, "-c", SHOW, nodes=3, processes=2, node=1) == 0
    for local, rank in enumerate((2, 3)):
        seen = json.loads(log_of(tmp_path, rank))
        assert {name: seen[name] for name in ("RANK", "LOCAL_RANK", "GROUP_RANK")} == {
            "RANK": str(rank),
            "LOCAL_RANK": str(local),
            "GROUP_RANK": "1",
        }
        assert (seen["WORLD_SIZE"], seen["LOCAL_WORLD_SIZE"], seen["GROUP_WORLD_SIZE"]) == (
            "6", "2", "3",
        )  # fmt: skip


def test_arguments_pass_through_unchanged(tmp_path: Path) -> None:
    arguments = ("--nodes", "9", "--", "a b", "", "-x")
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    assert run_agent(tmp_path, "-c", code, *arguments, processes=1) == 0
    assert json.loads(log_of(tmp_path, 0)) == list(arguments)


@pytest.mark.parametrize("code", [1, 75, 93])
def test_the_failing_rank_gives_the_exit_code(tmp_path: Path, code: int) -> None:
    source = f"import os, sys; print('why'); sys.exit({code} if os.environ['RANK'] == '1' else 0)"
    assert run_agent(tmp_path, "-c", source) == code
    record = first_failure(tmp_path)
    assert (record["exit_code"], record["rank"], record["host"], record["error"]) == (
        code, 1, "n0", "why",
    )  # fmt: skip


def test_a_crash_ends_the_other_ranks(tmp_path: Path) -> None:
    source = "import os, time; time.sleep(0 if os.environ['RANK'] == '0' else 600); 1 / 0"
    assert run_agent(tmp_path, "-c", source) == 1
    assert first_failure(tmp_path)["error"] == "ZeroDivisionError: division by zero"


def test_the_exception_is_reported_not_what_was_printed_after_it(tmp_path: Path) -> None:
    source = "import atexit; atexit.register(print, 'bye'); int('x')"
    assert run_agent(tmp_path, "-c", source, processes=1) == 1
    assert first_failure(tmp_path)["error"].startswith("ValueError: invalid literal")


def test_a_killed_rank_is_reported_as_a_shell_would(tmp_path: Path) -> None:
    source = "import os, signal; print('step 3', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    assert run_agent(tmp_path, "-c", source, processes=1) == 137
    assert first_failure(tmp_path)["error"] == ""


def test_ranks_that_stop_on_request_may_finish_saving(tmp_path: Path) -> None:
    source = (
        "import os, sys, time; slow = os.environ['RANK'] == '1'\n"
        "time.sleep(2 if slow else 0); print('saved'); sys.exit(75)"
    )
    assert run_agent(tmp_path, "-c", source) == 75
    assert log_of(tmp_path, 1) == "saved\n"


def test_a_node_that_stopped_waits_for_the_others(tmp_path: Path) -> None:
    early = start_agent(tmp_path, "-c", "import sys; sys.exit(75)", nodes=2, node=0)
    await_exit_record = tmp_path / "exits" / "node-0000.json"
    deadline = time.monotonic() + 30
    while not await_exit_record.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert early.poll() is None
    late = start_agent(tmp_path, "-c", "import sys; sys.exit(75)", nodes=2, node=1)
    assert (late.wait(30), early.wait(30)) == (75, 75)
    assert first_failure(tmp_path)["host"] == "n0"


def test_a_rank_without_a_handler_survives_usr2(tmp_path: Path) -> None:
    source = (
        "import os, signal; os.kill(os.getpid(), signal.SIGUSR2)\n"
        "os.kill(os.getppid(), signal.SIGUSR2); print('still here')"
    )
    assert run_agent(tmp_path, "-c", source, processes=1) == 0
    assert log_of(tmp_path, 0) == "still here\n"


def test_terminated_ranks_may_save(tmp_path: Path) -> None:
    """As scancel does: SIGTERM to the agent and to the ranks, once."""
    source = (
        "import os, signal, sys, time\n"
        "def stop(*_): time.sleep(1); print('saved', flush=True); sys.exit(75)\n"
        "signal.signal(signal.SIGTERM, stop); print(os.getpid(), flush=True); time.sleep(600)"
    )
    agent = start_agent(tmp_path, "-c", source)
    ranks = []
    for rank in (0, 1):
        await_line(tmp_path, rank, "\n")
        ranks.append(int(log_of(tmp_path, rank)))
    for pid in (agent.pid, *ranks):
        os.kill(pid, signal.SIGTERM)
    assert agent.wait(30) == 75
    assert all("saved" in log_of(tmp_path, rank) for rank in (0, 1))


def test_ranks_that_wait_for_a_crashed_one_are_ended_at_once(tmp_path: Path) -> None:
    source = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('ready', flush=True); time.sleep(600)"
    )
    agent = start_agent(tmp_path, "-c", source, nodes=2, node=1)
    for rank in (2, 3):
        await_line(tmp_path, rank, "ready")
    agent.send_signal(signal.SIGTERM)
    (tmp_path / "first-failure.json").write_text('{"exit_code": 1, "rank": 0}')
    assert agent.wait(30) == 137
    assert first_failure(tmp_path)["exit_code"] == 1

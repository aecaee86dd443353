"""Coordinator and node agents with real rank processes: what ranks get, and how they may end."""

from __future__ import annotations

import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
from processes import ends_soon
from ranks_on_this_machine import Job

from training.cluster.agent_checks import unfitness
from training.cluster.agent_link import (
    ADDRESS_VARIABLE,
    KEY_VARIABLE,
    LinkError,
    Listener,
    connect,
)
from training.cluster.health.config import NodeLimits
from training.cluster.node_agent import EXIT_UNFIT, free_port, main

SHOW = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"


def run(folder: Path, *command: str, **layout: Any) -> Job:
    job = Job(folder, *command, **layout).start()
    job.wait()
    return job


def first_failure(folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((folder / "first-failure.json").read_text())
    return record


def test_ranks_get_their_place_in_the_job(tmp_path: Path) -> None:
    job = run(tmp_path, "-c", SHOW, nodes=2, processes=2)
    assert job.exit_code == 0
    places = []
    for rank in range(4):
        seen = json.loads(job.log(rank))
        assert (seen["RANK"], seen["WORLD_SIZE"]) == (str(rank), "4")
        assert (seen["LOCAL_WORLD_SIZE"], seen["GROUP_WORLD_SIZE"]) == ("2", "2")
        assert seen["MASTER_ADDR"] == "127.0.0.1" and 20_000 <= int(seen["MASTER_PORT"]) < 32_000
        assert "DSM_COORDINATOR_KEY" not in seen, "the key is no business of the ranks"
        places.append((seen["SLURMD_NODENAME"], seen["GROUP_RANK"], seen["LOCAL_RANK"]))
    assert places == [("n0", "0", "0"), ("n0", "0", "1"), ("n1", "1", "0"), ("n1", "1", "1")]


def test_arguments_pass_through_unchanged(tmp_path: Path) -> None:
    arguments = ("--nodes", "9", "--", "a b", "", "-x")
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    job = run(tmp_path, "-c", code, *arguments, processes=1)
    assert json.loads(job.log(0)) == list(arguments)


@pytest.mark.parametrize("code", [1, 75, 93])
def test_the_failing_rank_gives_the_exit_code(tmp_path: Path, code: int) -> None:
    source = f"import os, sys; print('why'); sys.exit({code} if os.environ['RANK'] == '1' else 0)"
    assert run(tmp_path, "-c", source).exit_code == code
    record = first_failure(tmp_path)
    assert (record["exit_code"], record["rank"], record["host"], record["error"]) == (
        code, 1, "n0", "why",
    )  # fmt: skip


def test_a_crash_ends_the_other_ranks(tmp_path: Path) -> None:
    source = "import os, time; time.sleep(0 if os.environ['RANK'] == '0' else 600); 1 / 0"
    assert run(tmp_path, "-c", source, nodes=2, processes=1).exit_code == 1
    assert first_failure(tmp_path)["error"] == "ZeroDivisionError: division by zero"


def test_the_exception_is_reported_not_what_was_printed_after_it(tmp_path: Path) -> None:
    source = "import atexit; atexit.register(print, 'bye'); int('x')"
    assert run(tmp_path, "-c", source, processes=1).exit_code == 1
    assert first_failure(tmp_path)["error"].startswith("ValueError: invalid literal")


def test_a_killed_rank_is_reported_as_a_shell_would(tmp_path: Path) -> None:
    source = "import os, signal; print('step 3', flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    assert run(tmp_path, "-c", source, processes=1).exit_code == 137
    assert first_failure(tmp_path)["error"] == ""


def test_the_death_is_reported_not_the_echo_of_it(tmp_path: Path) -> None:
    """The other rank loses its peer, and may be seen to end first."""
    source = (
        "import os, pathlib, time; here = pathlib.Path('dying')\n"
        "if os.environ['RANK'] == '1': here.touch(); raise ValueError('the reason')\n"
        "while not here.exists(): time.sleep(0.001)\n"
        "raise ConnectionError('Connection closed by peer')"
    ).replace("'dying'", repr(str(tmp_path / "dying")))
    run(tmp_path, "-c", source)
    assert first_failure(tmp_path)["error"] == "ValueError: the reason"


def test_ranks_that_stop_on_request_may_finish_saving(tmp_path: Path) -> None:
    source = (
        "import os, sys, time; slow = os.environ['RANK'] == '1'\n"
        "time.sleep(2 if slow else 0); print('saved'); sys.exit(75)"
    )
    job = run(tmp_path, "-c", source, nodes=2, processes=1)
    assert job.exit_code == 75
    assert job.log(1) == "saved\n"


def test_a_rank_without_a_handler_survives_usr2(tmp_path: Path) -> None:
    source = (
        "import os, signal; os.kill(os.getpid(), signal.SIGUSR2)\n"
        "os.kill(os.getppid(), signal.SIGUSR2); print('still here')"
    )
    job = run(tmp_path, "-c", source, processes=1)
    assert (job.exit_code, job.log(0)) == (0, "still here\n")


def test_terminated_ranks_may_save_and_are_not_started_again(tmp_path: Path) -> None:
    """As scancel does: SIGTERM to the agent and to the ranks, once."""
    source = (
        "import os, signal, sys, time\n"
        "def stop(*_): time.sleep(1); print('saved', flush=True); sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, stop); print('ready', flush=True); time.sleep(600)"
    )
    job = Job(tmp_path, "-c", source, restarts=9).start()
    job.until(lambda: all("ready" in job.log(rank) for rank in (0, 1)), "ready")
    for pid in (*job.pids("n0", ranks=False), *job.pids("n0", ranks=True)):
        os.kill(pid, signal.SIGTERM)
    assert job.wait() == 1
    assert "saved" in job.log(0) + job.log(1)
    assert len(job.events("started")) == 1


def test_no_rank_outlives_its_agent(tmp_path: Path) -> None:
    source = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    job = Job(tmp_path, "-c", source, processes=1).start()
    job.until(lambda: job.log(0).strip(), "started")
    job.kill_node("n0")
    assert ends_soon(int(job.log(0)))
    assert job.wait() == 1
    assert first_failure(tmp_path)["nodes"] == ["n0"]


def test_a_job_that_slurm_starts_again_goes_on_counting_generations(tmp_path: Path) -> None:
    """Its checkpoints are then fenced from ranks that its dead node left running."""
    first = run(tmp_path, "-c", "import sys; sys.exit(1)", processes=1, restarts=1)
    again = run(tmp_path, "-c", SHOW, processes=1)
    assert [event.generation for event in again.events("started")] == [1, 2, 3]
    assert first.exit_code == 1
    assert json.loads(again.log(0))["DSM_GENERATION"] == "3"


LEAVES_A_CHILD = """
import os, subprocess, sys, time
if os.environ["DSM_GENERATION"] == "1":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"],
                             start_new_session=True)
    print(child.pid, flush=True)
    os._exit(1)
"""


def test_what_a_rank_left_behind_is_ended_before_the_next_one_starts(tmp_path: Path) -> None:
    job = run(tmp_path, "-c", LEAVES_A_CHILD, processes=1, restarts=1)
    assert job.exit_code == 0
    assert ends_soon(int(job.log(0)))


def test_a_process_of_an_older_attempt_is_ended(tmp_path: Path) -> None:
    sleeper = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
    old = Job(tmp_path / "attempts" / "1", "-c", sleeper, processes=1).start()
    old.until(lambda: old.log(0).strip(), "started")
    zombie = int(old.log(0))
    new = run(tmp_path / "attempts" / "2", "-c", "pass", processes=1)
    assert new.exit_code == 0
    assert ends_soon(zombie)
    assert new.events("orphans_ended")
    old.wait()


def test_a_port_in_use_is_passed_over() -> None:
    port = free_port(31_990)
    with socket.create_server(("", port)):
        assert free_port(port) == 20_000 + (port - 20_000 + 1) % 12_000


def test_nobody_gets_in_without_the_key(tmp_path: Path) -> None:
    listener = Listener("right")
    with pytest.raises((LinkError, OSError)):
        connect("127.0.0.1", listener.port, "wrong").receive(5)
    link = connect("127.0.0.1", listener.port, "right")
    admitted = listener.admitted.get(timeout=30)
    assert listener.admitted.empty()
    link.send({"event": "hello"})
    assert admitted.receive(30) == {"event": "hello"}
    admitted.close()
    with pytest.raises(LinkError):
        link.receive(30)
    listener.close()


def test_an_unfit_node_says_so_and_leaves(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    listener = Listener("key")
    monkeypatch.setenv("SLURMD_NODENAME", "node7")
    monkeypatch.setenv(ADDRESS_VARIABLE, f"127.0.0.1:{listener.port}")
    monkeypatch.setenv(KEY_VARIABLE, "key")
    health = '{"shared": ["/nonexistent"], "disks": []}'
    arguments = ["--attempt-dir", str(tmp_path), "--processes", "1", "--health", health]
    assert main([*arguments, "--", "-c", "pass"]) == EXIT_UNFIT
    assert "node7 is not fit: shared /nonexistent: drain" in capfd.readouterr().out
    told = listener.admitted.get(timeout=30).receive(30)
    listener.close()
    assert told is not None and (told["event"], told["node"]) == ("unfit", "node7")
    assert told["why"].startswith("shared /nonexistent: drain")
    assert unfitness(NodeLimits(shared=(tmp_path,), gpus=0)) == ""
    assert unfitness(NodeLimits(shared=(Path("/nonexistent"),), skip=("shared",), gpus=0)) == ""

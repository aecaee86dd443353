"""The sbatch script, run by real bash with stand-ins for the coordinator and scontrol."""

from __future__ import annotations

import json
import signal
import stat
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.cluster.job import Job
from training.cluster.job_plan import parse, plan_of, srun_command
from training.cluster.render import (
    REFUSED,
    bash_quote,
    render,
    sbatch_quote,
    write_script,
    write_successor,
)
from training.cluster.slurm_options import SlurmOptions
from workspace.errors import UserError

NASTY = (
    "a'b\"c $(touch /tmp/dsm-pwned) `id` \\ ;|&<> *?~# {x,y} ,=\n#SBATCH --partition=evil\r\n\té€"
)


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `python` (writes its arguments and environment down) and `scontrol`."""
    folder = tmp_path_factory.mktemp("stubs")
    python = f"""#!{sys.executable}
import json, os, sys, time
from pathlib import Path
Path("coordinator.json").write_text(json.dumps([sys.argv[1:], dict(os.environ)]))
time.sleep(float(os.environ.get("STUB_SLEEP", "0")))
sys.exit(int(os.environ.get("STUB_CODE", "0")))
"""
    scontrol = """#!/bin/sh
case "$1 $2" in
"show hostnames") printf 'node1\\nnode2\\n' ;;
*) echo "NodeName=node1 Arch=x86_64 NodeAddr=10.1.2.3 NodeHostName=node1 Version=22.05.8" ;;
esac
"""
    for name, text in (("python", python), ("scontrol", scontrol)):
        path = folder / name
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return folder


def with_stub(stubs: Path, **options: object) -> SlurmOptions:
    return SlurmOptions(python=str(stubs / "python"), **options)  # type: ignore[arg-type]


def job_in(folder: Path, **changes: object) -> Job:
    job = Job(key="dsm-run-sft-1", command=("-m", "trainer", "spec.json"), attempt_dir=folder)
    return replace(job, **changes)  # type: ignore[arg-type]


def start(script: Path, stubs: Path, **environment: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["bash", str(script)],
        env={
            "PATH": f"{stubs}:/usr/bin:/bin",
            "SLURM_JOB_ID": "4711",
            "SLURM_JOB_NODELIST": "node[1-2]",
            "LC_ALL": "C.UTF-8",
            **environment,
        },
        cwd="/",
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def run_script(script: Path, stubs: Path, **environment: str) -> tuple[int, str]:
    process = start(script, stubs, **environment)
    _, errors = process.communicate(timeout=60)
    return process.returncode, errors.decode()


def seen_at_start(folder: Path) -> tuple[list[str], dict[str, str]]:
    arguments, environment = json.loads((folder / "coordinator.json").read_text())
    return arguments, environment


texts = st.text(st.characters(exclude_characters="\x00", exclude_categories=("Cs",)), max_size=60)
words = st.one_of(texts, st.sampled_from((NASTY, "", "-n", "--", "#", "~", "$HOME", "a b", "\n")))
# One path component that ext4 takes: at most 255 bytes.
folders = words.map(lambda text: "x" + text.replace("/", "_")[:50])


@given(
    environment=st.dictionaries(st.from_regex(r"DSM_[A-Z0-9_]{1,12}", fullmatch=True), words),
    command=st.lists(words, min_size=1, max_size=5),
    folder=folders,
)
@settings(max_examples=40, deadline=None)
def test_any_strings_reach_the_ranks_unchanged(
    stubs: Path, environment: dict[str, str], command: list[str], folder: str
) -> None:
    with tempfile.TemporaryDirectory() as root:
        attempt = Path(root) / folder
        attempt.mkdir()
        try:
            script = write_script(
                job_in(attempt, environment=environment, command=tuple(command)), with_stub(stubs)
            )
        except UserError:
            # sbatch could not take this folder's name in a directive; refused, not mangled.
            assert any(ord(letter) < 32 or ord(letter) == 127 for letter in folder)
            return
        code, errors = run_script(script, stubs)
        assert (code, errors) == (0, "")
        arguments, seen = seen_at_start(attempt)
        assert arguments[arguments.index("--") + 1 :] == command
        assert arguments[arguments.index("--attempt-dir") + 1] == str(attempt)
        assert {name: seen[name] for name in environment} == environment
    assert not Path("/tmp/dsm-pwned").exists()


@given(text=texts)
@settings(max_examples=60, deadline=None)
def test_a_quoted_value_is_one_word_on_one_line(text: str) -> None:
    quoted = bash_quote(text)
    assert "\n" not in quoted and "\r" not in quoted
    shown = subprocess.run(
        ["bash", "-c", f"printf '%s' {quoted}"], capture_output=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert shown.stdout == text.encode()


@pytest.mark.parametrize("name", ["IFS", "step", "code", "attempt_dir", "restart", "python"])
def test_a_variable_of_the_job_cannot_disturb_the_script(
    tmp_path: Path, stubs: Path, name: str
) -> None:
    script = write_script(
        job_in(tmp_path, environment={name: "75", "STUB_CODE": "3"}), with_stub(stubs)
    )
    assert run_script(script, stubs) == (3, "")
    assert seen_at_start(tmp_path)[1][name] == "75"


def test_the_coordinator_is_told_of_the_allocation(tmp_path: Path, stubs: Path) -> None:
    job = job_in(
        tmp_path, nodes=1, spares=1, processes_per_node=4, restarts=7, checkpoints=tmp_path / "a b"
    )
    assert run_script(write_script(job, with_stub(stubs)), stubs) == (0, "")
    plan = parse(seen_at_start(tmp_path)[0][2:])
    assert seen_at_start(tmp_path)[0][:2] == ["-m", "training.cluster.coordinator"]
    assert (plan.host, plan.node_names, plan.nodes) == ("10.1.2.3", "node1,node2", 1)
    assert (plan.processes, plan.restarts, plan.checkpoints) == (4, 7, tmp_path / "a b")
    assert plan_of(plan).sections == job.sections
    assert {"--nodes=2", "--ntasks=2", "--cpus-per-task=4", "--no-kill"} <= set(
        srun_command(plan, 2)
    )
    assert (tmp_path / "nodes.txt").read_text() == "node1\nnode2\n"
    assert "--nodes=2" in directives(job, SlurmOptions()), "the spare is in the allocation"


@pytest.mark.parametrize("code", [0, 1, 75, 93, 137])
def test_the_exit_code_is_passed_on_and_recorded(tmp_path: Path, stubs: Path, code: int) -> None:
    script = write_script(job_in(tmp_path), with_stub(stubs))
    assert run_script(script, stubs, STUB_CODE=str(code)) == (code, "")
    recorded = json.loads((tmp_path / "exit.json").read_text())
    assert recorded["ended"] > 1.7e9
    assert {**recorded, "ended": 0} == {
        "exit_code": code, "job_id": "4711", "restart": 0, "terminated": False, "ended": 0,
    }  # fmt: skip


def test_a_requeued_job_repeats_a_final_outcome_but_retries_a_crash(
    tmp_path: Path, stubs: Path
) -> None:
    script = write_script(job_in(tmp_path), with_stub(stubs, requeue=True))
    assert run_script(script, stubs, STUB_CODE="75")[0] == 75
    (tmp_path / "coordinator.json").unlink()
    assert run_script(script, stubs, SLURM_RESTART_COUNT="1", STUB_CODE="0")[0] == 75
    assert not (tmp_path / "coordinator.json").exists()

    (tmp_path / "exit.json").write_text('{"exit_code": 143, "job_id": "4711"}\n')
    assert run_script(script, stubs, SLURM_RESTART_COUNT="1", STUB_CODE="0")[0] == 0


def await_file(path: Path) -> None:
    deadline = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < deadline, f"{path.name} did not appear"
        time.sleep(0.02)


def test_usr2_asks_the_ranks_to_stop_and_keeps_their_exit_code(tmp_path: Path, stubs: Path) -> None:
    script = write_script(job_in(tmp_path), with_stub(stubs))
    process = start(script, stubs, STUB_SLEEP="1.5", STUB_CODE="75")
    await_file(tmp_path / "coordinator.json")
    process.send_signal(signal.SIGUSR2)
    await_file(tmp_path / "stop-requested")
    assert process.poll() is None
    assert process.wait(30) == 75


def test_term_is_recorded_and_leaves_the_ranks_time_to_save(tmp_path: Path, stubs: Path) -> None:
    script = write_script(job_in(tmp_path), with_stub(stubs))
    process = start(script, stubs, STUB_SLEEP="1.5", STUB_CODE="75")
    await_file(tmp_path / "coordinator.json")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 75
    recorded = json.loads((tmp_path / "exit.json").read_text())
    assert (recorded["exit_code"], recorded["terminated"]) == (75, True)


def directives(job: Job, options: SlurmOptions) -> list[str]:
    lines = render(job, options).splitlines()
    return [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]


def test_directives_of_a_full_job(tmp_path: Path) -> None:
    job = job_in(
        tmp_path,
        nodes=4,
        processes_per_node=8,
        cpus_per_process=12,
        gpus_per_node=8,
        time_limit_s=90_061,
        exclude_nodes=("n3", "n7"),
    )
    options = SlurmOptions(
        partition="gpu",
        account="llm",
        qos="high",
        constraint="h100&ib",
        reservation="week 12",
        mem="0",
        exclusive=True,
        extra=("--switches=1@10:00", "--contiguous", '--mail-user="me" <me@example.org>'),
        signal_lead_s=300,
        requeue=True,
    )
    assert directives(job, options) == [
        "--job-name=dsm-run-sft-1",
        "--comment=dsm-run-sft-1",
        f"--chdir={tmp_path}",
        "--output=job.log",
        "--open-mode=append",
        "--nodes=4",
        "--ntasks-per-node=1",
        "--cpus-per-task=96",
        "--time=25:02:00",
        "--signal=B:USR2@300",
        "--partition=gpu",
        "--account=llm",
        "--qos=high",
        '--constraint="h100&ib"',
        '--reservation="week 12"',
        "--gres=gpu:8",
        "--mem=0",
        "--exclude=n3,n7",
        "--requeue",
        "--no-kill",
        "--exclusive",
        "--switches=1@10:00",
        "--contiguous",
        '--mail-user="\\"me\\" <me@example.org>"',
    ]


def test_a_plain_job_asks_for_nothing_special(tmp_path: Path) -> None:
    lines = directives(job_in(tmp_path), SlurmOptions())
    assert lines[-2:] == ["--no-requeue", "--no-kill"]
    assert not any(line.startswith(("--partition", "--gres", "--exclude")) for line in lines)


def test_setup_lines_run_before_the_ranks(tmp_path: Path, stubs: Path) -> None:
    options = with_stub(stubs, setup=("export FROM_SETUP=$((40 + 2))",))
    run_script(write_script(job_in(tmp_path), options), stubs)
    assert seen_at_start(tmp_path)[1]["FROM_SETUP"] == "42"


def test_script_and_spec_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    job = job_in(tmp_path, environment={"HF_TOKEN": "secret"})
    script = write_script(job, SlurmOptions(partition="gpu"))
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    spec = json.loads((tmp_path / "job.json").read_text())
    assert spec["key"] == job.key and spec["slurm"]["partition"] == "gpu"
    assert {path.name for path in tmp_path.iterdir()} == {"job.json", script.name}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"key": "a b"}, "'a b'"),
        ({"key": "x\n#SBATCH --uid=0"}, "job key"),
        ({"key": "-n"}, "job key"),
        ({"environment": {"A B": "1"}}, "'A B'"),
        ({"environment": {"UID": "0"}}, "'UID'"),
        ({"environment": {"A": "x\x00y"}}, "NUL"),
        ({"exclude_nodes": ("n1 --uid=0",)}, "n1 --uid=0"),
        ({"attempt_dir": Path("relative")}, "relative"),
        ({"attempt_dir": Path("/tmp/a\nb")}, "control characters"),
        ({"command": ()}, "command"),
        ({"nodes": 0}, "at least 1"),
        ({"environment": {"BIG": "x" * (5 << 20)}}, "4 MiB"),
    ],
)
def test_what_cannot_be_written_is_refused(
    tmp_path: Path, changes: dict[str, object], named: str
) -> None:
    with pytest.raises(UserError, match=named):
        render(job_in(tmp_path, **changes), SlurmOptions())


@pytest.mark.parametrize(
    "option", ["partition=gpu", "--mem=1\n#SBATCH --uid=0", "-p gpu", "--a b", "--auto-resume=1"]
)
def test_a_malformed_extra_option_is_refused(tmp_path: Path, option: str) -> None:
    with pytest.raises(UserError):
        render(job_in(tmp_path), SlurmOptions(extra=(option,)))


def test_sbatch_quote_leaves_plain_values_alone() -> None:
    assert sbatch_quote("gpu:a100:8") == "gpu:a100:8"
    assert sbatch_quote('a "b" \\ c') == '"a \\"b\\" \\\\ c"'


@pytest.mark.parametrize(("answer", "code"), [(0, 41), (REFUSED, 0), (1, 1), (137, 137)])
def test_a_successor_becomes_the_attempt_only_when_it_is_wanted(
    answer: int, code: int, tmp_path: Path, stubs: Path
) -> None:
    waits, attempt = tmp_path / "it's waiting", tmp_path / "attempts" / "2"
    job = job_in(attempt, environment={"NASTY": NASTY})
    script = write_successor(job, with_stub(stubs, successor_wait_s=7), waits, "4710")
    attempt.mkdir(parents=True)
    (attempt / "job.sbatch").write_text("echo trains; exit 41\n")
    assert run_script(script, stubs, STUB_CODE=str(answer))[0] == code
    arguments, environment = seen_at_start(waits)
    assert arguments == ["-m", "training.cluster.successor", str(waits), "7.0"]
    assert environment["NASTY"] == NASTY
    log = attempt / "job.log"
    assert (log.read_text() if log.exists() else "") == "trains\n" * (answer == 0)


def test_the_coordinator_is_told_to_replace_stragglers(tmp_path: Path, stubs: Path) -> None:
    for wanted in (False, True):
        folder = tmp_path / str(wanted)
        job = job_in(folder, spares=1, replace_stragglers=wanted)
        run_script(write_script(job, with_stub(stubs)), stubs)
        arguments, _ = seen_at_start(folder)
        assert plan_of(parse(arguments[2:])).replace_stragglers is wanted

"""Parsing what Slurm's commands print. The samples are from Slurm 22.05.8 unless said otherwise."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.cluster import slurm_output as output
from training.cluster.slurm_client import classify_error, clean_environment
from training.cluster.slurm_output import ExitStatus, JobInfo, NodeInfo
from workspace.errors import TransientError, UserError

SEPARATOR = "\x1f"


def row(*fields: str) -> str:
    return "".join(field + SEPARATOR for field in fields)


def test_jobs() -> None:
    listing = "\n".join(
        (
            row("17", "FAILED", "0", "23808", "node[1-2]", "NonZeroExitCode", "dsm-a", "/w"),
            row("18", "PENDING", "2", "0", "", "BeginTime", "we | ird, name", "/a b"),
            row("19", "RUNNING", "0", "0", "gpu01", "None", "x", ""),
            "",
        )
    )
    assert output.parse_jobs(listing) == [
        JobInfo(
            "17", "FAILED", "dsm-a", "/w", "NonZeroExitCode", ("node1", "node2"), 0,
            ExitStatus(93, 0),
        ),
        JobInfo("18", "PENDING", "we | ird, name", "/a b", "BeginTime", (), 2),
        JobInfo("19", "RUNNING", "x", "", "", ("gpu01",)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", ExitStatus(0, 0)),
        ("23808", ExitStatus(93, 0)),
        ("9", ExitStatus(0, 9)),
        ("75:0", ExitStatus(75, 0)),
        ("0:15", ExitStatus(0, 15)),
        ("", ExitStatus(0, 0)),
    ],
)
def test_exit_codes(text: str, expected: ExitStatus) -> None:
    assert output.parse_exit(text) == expected


def test_nodes_of_several_partitions_come_once() -> None:
    listing = "\n".join(
        SEPARATOR.join(fields)
        for fields in (
            ("node2", "down*", "Not responding"),
            ("node1", "idle", "none"),
            ("node1", "idle", "none"),
            ("node3", "draining", "bad GPU"),
            ("node4", "mixed", "none"),
            ("node5", "idle*", "none"),
        )
    )
    nodes = output.parse_nodes(listing)
    assert nodes[:2] == [
        NodeInfo("node1", "idle", True),
        NodeInfo("node2", "down", False, "Not responding"),
    ]
    assert [node.name for node in nodes if node.usable] == ["node1", "node4"]


def test_accounting_reads_who_cancelled_as_cancelled() -> None:
    listing = "\n".join(
        SEPARATOR.join(fields)
        for fields in (
            ("5", "CANCELLED by 1000", "0:15", "n[1-2]", "dsm-a"),
            ("6", "CANCELLED by 0", "0:0", "None assigned", "dsm-b"),
            ("7", "NODE_FAIL", "0:0", "n3", "dsm-c"),
        )
    )
    jobs = output.parse_accounting(listing)
    assert [job.state for job in jobs] == ["CANCELLED", "CANCELLED", "NODE_FAIL"]
    assert jobs[0].nodes == ("n1", "n2") and jobs[1].nodes == ()


def test_completions() -> None:
    line = (
        "JobId={} UserId=root(0) GroupId=root(0) Name={} JobState=NODE_FAIL Partition=main "
        "TimeLimit=UNLIMITED StartTime=2026-01-30T10:16:28 EndTime=2026-01-30T10:16:28 "
        "NodeList=node[1-3] NodeCnt=3 ProcCnt=3 WorkDir=/tmp ReservationName= Tres=cpu=3 "
        "Account= QOS= WcKey= Cluster=unknown SubmitTime=2026-01-30T10:16:28 "
        "EligibleTime=2026-01-30T10:16:28 DerivedExitCode=0:0 ExitCode=0:0 \n"
    )
    found = output.parse_completions([line.format(1, "a"), line.format(12, "b")], "1")
    assert found == [JobInfo("1", "NODE_FAIL", "a", nodes=("node1", "node2", "node3"))]


def test_config_and_version() -> None:
    shown = "JobCompLoc              = /var/log/jobcomp.log\nSlurmctldParameters     = a=1,b=2\n"
    assert output.parse_config(shown) == {
        "JobCompLoc": "/var/log/jobcomp.log",
        "SlurmctldParameters": "a=1,b=2",
    }
    assert output.parse_version("slurm-wlm 22.05.8\n") == (22, 5)
    assert output.parse_version("slurm 24.11.1\n") == (24, 11)


def test_job_ids() -> None:
    assert output.parse_job_id("4711\n") == "4711"
    assert output.parse_job_id("4711;cluster\n") == "4711"
    # A site's submit plugin may talk before the id.
    assert output.parse_job_id("lua: welcome\n4711\n") == "4711"
    with pytest.raises(UserError, match="no job id"):
        output.parse_job_id("")


@pytest.mark.parametrize(
    ("compressed", "names"),
    [
        ("", ()),
        ("login", ("login",)),
        ("gpu[01-03,7],login", ("gpu01", "gpu02", "gpu03", "gpu7", "login")),
        ("n[098-101]", ("n098", "n099", "n100", "n101")),
        ("rack[1-2]n[3,5]-ib", ("rack1n3-ib", "rack1n5-ib", "rack2n3-ib", "rack2n5-ib")),
    ],
)
def test_node_lists(compressed: str, names: tuple[str, ...]) -> None:
    assert output.expand_nodes(compressed) == names


@given(st.lists(st.from_regex(r"[a-z]{1,4}[0-9]{0,3}", fullmatch=True), max_size=6))
def test_a_plain_list_of_nodes_is_itself(names: list[str]) -> None:
    assert output.expand_nodes(",".join(names)) == tuple(names)


@pytest.mark.parametrize(
    "message",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sbatch: error: Batch job submission failed: Zero Bytes were transmitted or received",
        "squeue: error: If munged is up, restart with --num-threads=10\n"
        'squeue: error: Munge encode failed: Failed to connect to "/run/munge.socket.2"',
        "sbatch: error: Slurm temporarily unable to accept job, sleeping and retrying",
    ],
)
def test_a_silent_controller_is_transient(message: str) -> None:
    assert isinstance(classify_error("sbatch", message), TransientError)


@pytest.mark.parametrize(
    "message",
    [
        "sbatch: error: invalid partition specified: nope\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition "
        "combination specified",
        "",
    ],
)
def test_a_refusal_is_the_users_to_mend(message: str) -> None:
    error = classify_error("sbatch", message)
    assert isinstance(error, UserError)
    assert message.strip() in str(error)


def test_variables_that_change_the_commands_are_left_out() -> None:
    kept = clean_environment(
        {
            "PATH": "/bin",
            "SLURM_CONF": "/etc/slurm.conf",
            "SLURM_JOB_ID": "1",
            "SBATCH_PARTITION": "x",
            "SQUEUE_FORMAT": "%i",
            "SLURM_TIME_FORMAT": "relative",
        }
    )
    assert kept == {
        "PATH": "/bin",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_TIME_FORMAT": "standard",
    }

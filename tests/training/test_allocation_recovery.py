"""Ranks that die, hang or lag, and nodes that vanish, inside one allocation."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks_on_this_machine import Job

from benchmarks.chaos.trainer import Settings, read_ledger, undisturbed_weights
from training.cluster.hang import RankView, SectionLimits, culprits
from training.cluster.heartbeat import BeatReader, Heartbeat, Section
from training.cluster.stragglers import StragglerWatch

MODULE = "benchmarks.chaos.trainer"
LIMITS = SectionLimits(setup_s=60, step_s=3, checkpoint_s=60, evaluation_s=60)

StartJob = Callable[..., tuple[Job, Settings]]


@pytest.fixture
def start(tmp_path: Path) -> StartJob:
    def run(changes: dict[str, Any] | None = None, **layout: Any) -> tuple[Job, Settings]:
        settings = Settings(str(tmp_path), **{"steps": 60, "step_s": 0.05, **(changes or {})})
        written = settings.write(tmp_path / "settings.json")
        job = Job(
            tmp_path / "attempts" / "1", "-m", MODULE, str(written),
            checkpoints=tmp_path / "checkpoints", **{"restarts": 5, "sections": LIMITS, **layout},
        )  # fmt: skip
        return job.start(), settings

    return run


def trained(settings: Settings, step: int) -> bool:
    return any(line["step"] >= step for line in read_ledger(Path(settings.stage)))


def assert_nothing_was_lost(settings: Settings) -> None:
    assert (Path(settings.stage) / "weights").read_text() == undisturbed_weights(settings)


def test_a_killed_rank_is_started_again_on_the_same_nodes(start: StartJob) -> None:
    job, settings = start(nodes=2, spares=1, processes=1)
    job.until(lambda: trained(settings, 25), "trained 25 steps")
    os.kill(job.pids("n1", ranks=True)[0], signal.SIGKILL)
    assert job.wait() == 0
    assert [event.nodes for event in job.events("started")] == [("n0", "n1")] * 2
    resumed = [
        line["step"] for line in read_ledger(Path(settings.stage)) if line["generation"] == 2
    ]
    assert resumed[0] in (11, 21, 31, 41, 51), "from the newest checkpoint, not from the start"
    assert_nothing_was_lost(settings)


def test_a_spare_takes_the_place_of_a_lost_node(start: StartJob) -> None:
    job, settings = start(nodes=2, spares=1, processes=1)
    job.until(lambda: trained(settings, 15), "trained 15 steps")
    job.kill_node("n1")
    assert job.wait() == 0
    assert [event.nodes for event in job.events("started")] == [("n0", "n1"), ("n0", "n2")]
    assert [event.nodes for event in job.events("node_lost")] == [("n1",)]
    assert_nothing_was_lost(settings)


def test_a_node_that_is_lost_before_the_ranks_start_takes_no_other_with_it(tmp_path: Path) -> None:
    """The others are asked to end ranks that they were never told to start."""
    leaves = (
        "import os; from training.cluster import agent_link as a\n"
        "host, _, port = os.environ[a.ADDRESS_VARIABLE].rpartition(':')\n"
        "link = a.connect(host, int(port), os.environ[a.KEY_VARIABLE])\n"
        "link.send({'event': 'hello', 'node': 'n0'}); link.receive(60)"
    )
    instead = {"n0": shlex.join([sys.executable, "-c", leaves])}
    folder = tmp_path / "attempts" / "1"
    job = Job(folder, "-c", "pass", nodes=2, spares=1, restarts=1, instead=instead).start()
    assert job.wait() == 0
    assert [event.nodes for event in job.events("node_lost")] == [("n0",)]
    assert job.events("started")[-1].nodes == ("n2", "n1")


def test_a_node_that_only_seemed_dead_is_fenced_off(start: StartJob) -> None:
    """Its agent stops for longer than an agent may be silent, while its rank lives on."""
    job, settings = start(nodes=2, spares=1, processes=1)
    job.until(lambda: trained(settings, 15), "trained 15 steps")
    [agent] = job.pids("n1", ranks=False)
    os.kill(agent, signal.SIGSTOP)
    job.until(lambda: job.events("spare_used"), "used the spare")
    os.kill(agent, signal.SIGCONT)
    job.until(lambda: not job.pids("n1", ranks=True), "ended the ranks of the lost node")
    assert job.wait() == 0
    assert_nothing_was_lost(settings)


def test_without_a_spare_the_job_ends_and_names_the_lost_node(start: StartJob) -> None:
    job, settings = start(nodes=2, processes=1)
    job.until(lambda: trained(settings, 15), "trained 15 steps")
    job.kill_node("n1")
    assert job.wait() == 1
    [ended] = job.events("ended")
    assert (ended.facts["cause"], ended.nodes) == ("node_silent", ("n1",))


@pytest.mark.parametrize("fault", ["stopped", "loader"])
def test_a_hanging_rank_is_named_with_its_stack(start: StartJob, fault: str) -> None:
    changes = {"hang_rank": 2, "hang_step": 15} if fault == "loader" else {}
    job, settings = start(changes, nodes=2, processes=2)
    if fault == "stopped":
        job.until(lambda: trained(settings, 15), "trained 15 steps")
        os.kill(job.pids("n1", ranks=True)[0], signal.SIGSTOP)
    job.until(lambda: job.events("hang"), "noticed")
    assert job.wait() == 0
    [hang] = job.events("hang")
    assert hang.nodes == ("n1",)
    if fault == "loader":
        assert hang.facts["ranks"] == [2]
        assert "load_batch_for_ever" in hang.detail
    else:
        assert ", stopped" in hang.detail
    assert_nothing_was_lost(settings)


def test_a_bug_ends_the_job_after_three_tries(start: StartJob) -> None:
    job, _ = start({"bug_rank": 1, "bug_step": 5}, nodes=2, spares=1, processes=1)
    assert job.wait() == 1
    ended = job.events("ended")
    assert [event.nodes for event in ended] == [("n1",), ("n1",), ("n2",)]
    assert "ValueError: row 40 has no answer" in ended[-1].detail


def test_a_slow_rank_is_named_and_a_fast_one_is_not(start: StartJob) -> None:
    job, settings = start({"slow_rank": 1, "slow_from": 10}, nodes=2, processes=2)
    assert job.wait() == 0
    found = job.events("straggler")
    assert [event.facts["rank"] for event in found] == [1]
    assert found[0].nodes == ("n0",)
    assert found[0].facts["step"] <= 10 + 20
    assert_nothing_was_lost(settings)


def test_a_node_that_stays_slow_is_replaced_where_that_is_wanted(start: StartJob) -> None:
    slow = {"slow_node": "n0", "slow_from": 10, "steps": 140}
    job, settings = start(slow, nodes=2, spares=1, replace_stragglers=True)
    assert job.wait() == 0
    assert [event.nodes for event in job.events("started")] == [("n0", "n1"), ("n2", "n1")]
    [first, last] = job.events("ended")
    assert (first.facts["cause"], first.facts["suspects"]) == ("slow", ["n0"])
    assert last.facts["from_step"] == first.facts["newest_step"] > 10 + 60
    trained = [line["step"] for line in read_ledger(Path(settings.stage))]
    assert trained == list(range(1, 141)), "all ranks saved before they left: no step again"
    assert_nothing_was_lost(settings)


def test_a_slow_node_stays_where_no_spare_is_left(start: StartJob) -> None:
    slow = {"slow_node": "n0", "slow_from": 10, "steps": 110}
    job, settings = start(slow, nodes=2, replace_stragglers=True)
    assert job.wait() == 0
    assert len(job.events("started")) == 1 and job.events("straggler")
    assert_nothing_was_lost(settings)


def test_a_trainer_without_heartbeats_is_left_in_peace(start: StartJob) -> None:
    tight = SectionLimits(setup_s=0.1, step_s=0.1)
    job, _ = start({"deaf": True, "step_s": 0.5, "steps": 4}, processes=2, sections=tight)
    assert job.wait() == 0
    assert not job.events("hang")


def view(rank: int, **changes: Any) -> RankView:
    known: dict[str, Any] = {"section": Section.STEP, "age_s": 60.0, "step": 7, "changes": 9}
    return RankView(rank, f"n{rank}", **{**known, **changes})


WAITS = ("all_reduce (distributed_c10d.py:2500)", "step (train.py:9)")
LOADS = ("read (io.py:1)", "__next__ (loader.py:3)")


@pytest.mark.parametrize(
    ("views", "named"),
    [
        ([view(0), view(1, process_state="T"), view(2)], [1]),
        ([view(0), view(1, process_state="D"), view(2, process_state="D")], [1, 2]),
        ([view(0), view(1), view(2, step=6)], [2]),
        ([view(0), view(1, changes=8), view(2)], [1]),
        ([view(0, stack=WAITS), view(1, stack=LOADS)], [1]),
        ([view(0, stack=WAITS), view(1, stack=WAITS)], []),
        ([view(0, stack=LOADS), view(1, stack=LOADS), view(2, stack=("f (a.py:1)",))], [2]),
        ([view(0)], []),
    ],
)
def test_who_is_to_blame_for_a_hang(views: list[RankView], named: list[int]) -> None:
    assert [view.rank for view in culprits(views)] == named


def feed(watch: StragglerWatch, steps: list[dict[int, float]]) -> list[tuple[int, int]]:
    found = []
    for number, step in enumerate(steps, 1):
        for rank, seconds in step.items():
            found += [(s.rank, s.step) for s in watch.add(rank, [(number, seconds)])]
    return found


def test_a_straggler_is_named_once_until_it_recovers() -> None:
    usual, slow = {0: 1.0, 1: 1.01, 2: 0.99}, {0: 1.0, 1: 1.3, 2: 0.99}
    steps = [usual] * 20 + [slow] * 40 + [usual] * 30 + [slow] * 30
    named = feed(StragglerWatch(3), steps)
    assert [rank for rank, _ in named] == [1, 1]
    assert 20 < named[0][1] <= 50 and 90 < named[1][1] <= 120


def test_single_slow_steps_name_nobody() -> None:
    """A garbage collection every fifth step of every rank."""
    steps = [
        {rank: 3.0 if (number + rank) % 5 == 0 else 1.0 for rank in range(4)}
        for number in range(200)
    ]
    assert feed(StragglerWatch(4), steps) == []


@pytest.mark.parametrize(
    ("ranks", "step_s", "slow_steps", "named"),
    [
        (2, 1.0, 25, False),  # of one other rank, 25 steps say too little
        (2, 1.0, 40, True),
        (4, 1.0, 12, False),
        (4, 1.0, 20, True),
        (2, 0.004, 40, False),  # a burst of other work on the machine: 40 steps in 0.2 s
        (2, 0.1, 40, True),
    ],
)
def test_how_long_a_rank_must_be_slow(
    ranks: int, step_s: float, slow_steps: int, named: bool
) -> None:
    usual = dict.fromkeys(range(ranks), step_s)
    steps = [usual] * 60 + [{**usual, 0: 4.75 * step_s}] * slow_steps + [usual] * 60
    found = feed(StragglerWatch(ranks), steps)
    assert [rank for rank, _ in found] == [0] * named


@given(
    ranks=st.integers(2, 6),
    step_s=st.floats(0.05, 3),
    every=st.integers(1, 12),
    save_s=st.floats(0, 100),
    noise=st.lists(st.floats(0.98, 1.02), min_size=120, max_size=120),
)
def test_what_a_save_costs_is_nobodys_slowness(
    ranks: int, step_s: float, every: int, save_s: float, noise: list[float]
) -> None:
    """Rank 0 saves, and is slow in the step after it, as its heartbeat sees it."""
    watch = StragglerWatch(ranks)
    with TemporaryDirectory() as folder:
        reader = BeatReader(Path(folder) / "beat")
        beat = Heartbeat(reader.path)
        for number in range(1, 101):
            after_save = number % every == 1 or every == 1
            if after_save:
                beat.section(Section.CHECKPOINT)
                beat.section(Section.STEP)
            beat.step(number, step_s * noise[number] + save_s * after_save)
            seen = reader.read()
            assert seen is not None
            found = watch.add(0, seen.steps)
            for rank in range(1, ranks):
                found += watch.add(rank, [(number, step_s * noise[number + rank])])
            assert found == []
        reader.close()


def test_the_step_after_an_evaluation_counts_again_later(tmp_path: Path) -> None:
    reader = BeatReader(tmp_path / "beat")
    beat = Heartbeat(reader.path)
    beat.section(Section.STEP)
    beat.step(1, 1.0)
    beat.section(Section.EVALUATION)
    beat.section(Section.STEP)
    beat.step(2, 9.0)
    beat.step(3, 1.1)
    seen = reader.read()
    assert seen is not None
    assert (seen.steps, seen.step) == (((1, 1.0), (3, 1.1)), 3)
    reader.close()

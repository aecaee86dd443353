"""The accountant of a run: every second of every device in one bucket, and sums that are exact."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training import metrics, phases
from training.goodput import Bucket, PriceTable, account_run, read_prices
from training.goodput.__main__ import as_json, main
from training.goodput.account import account
from training.goodput.buckets import MICROSECONDS, Span, StepSpan, Trace, cut
from training.goodput.forecast import Rhythm, best_interval, ettr, outlook
from training.goodput.prices import write_prices
from workspace.errors import UserError

SECOND = MICROSECONDS
B = Bucket


def steps(begin: int, seconds: int, numbers: range) -> tuple[StepSpan, ...]:
    """Steps of equal length, one after the other."""
    return tuple(
        StepSpan(
            (begin + index * seconds) * SECOND, (begin + (index + 1) * seconds) * SECOND, number
        )
        for index, number in enumerate(numbers)
    )


def seconds(time: dict[Bucket, int]) -> dict[Bucket, float]:
    return {bucket: value / SECOND for bucket, value in time.items() if value}


CLEAN = Trace(
    "sft", 1, submitted=0, started=10 * SECOND, ended=100 * SECOND, orderly=True, devices=8,
    nodes=2, nodes_allocated=3, gpu="h100",
    steps=steps(40, 10, range(1, 6)),
    phases=(
        Span(15 * SECOND, 40 * SECOND, B.LOAD),
        Span(70 * SECOND, 73 * SECOND, B.CHECKPOINT),
        Span(90 * SECOND, 95 * SECOND, B.CHECKPOINT),
    ),
    saves=(3 * SECOND,),
)  # fmt: skip


def test_an_undisturbed_attempt() -> None:
    [attempt] = account("r", [CLEAN]).attempts
    per_node = {
        B.QUEUE: 10, B.STARTUP: 5 + 5, B.LOAD: 25, B.PRODUCTIVE: 47, B.CHECKPOINT: 8,
    }  # fmt: skip
    expected = {bucket: value * 16 for bucket, value in per_node.items()}
    assert seconds(attempt.time) == {**expected, B.IDLE_SPARE: 8 * 90}
    assert attempt.allocated == 3 * 8 * 90 * SECOND


def test_an_evaluation_is_no_training() -> None:
    """Five steps of 10 s from 40 on; unseen rows are looked at from 62 to 66, inside the third."""
    measured = Span(62 * SECOND, 66 * SECOND, B.EVALUATION)
    trace = replace(CLEAN, phases=(*CLEAN.phases, measured))
    [before], [after] = (account("r", [one]).attempts for one in (CLEAN, trace))
    assert after.time[B.EVALUATION] == 4 * 16 * SECOND
    assert after.time[B.PRODUCTIVE] == before.time[B.PRODUCTIVE] - 4 * 16 * SECOND
    assert after.allocated == before.allocated
    assert sum(after.time.values()) - after.time[B.QUEUE] == after.allocated


def test_steps_trained_again_are_recompute_and_a_failures_silence_is_a_stall() -> None:
    first = Trace(
        "sft", 1, 0, 0, 100 * SECOND, steps=steps(20, 10, range(1, 6)),
        phases=(Span(0, 20 * SECOND, B.LOAD),),
    )  # fmt: skip
    second = Trace(
        "sft", 2, 100 * SECOND, 130 * SECOND, 220 * SECOND, orderly=True,
        steps=steps(140, 10, range(4, 12)), phases=(Span(130 * SECOND, 140 * SECOND, B.LOAD),),
    )  # fmt: skip
    run = account("r", [first, second])
    assert seconds(run.attempts[0].time) == {B.LOAD: 20, B.PRODUCTIVE: 50, B.STALLED: 30}
    assert seconds(run.attempts[1].time) == {
        B.QUEUE: 30, B.LOAD: 10, B.RECOMPUTE: 20, B.PRODUCTIVE: 60,
    }  # fmt: skip
    assert run.failures == 1
    assert run.goodput == pytest.approx(110 / 190)
    assert run.ettr == pytest.approx(110 / 220)
    assert run.rhythm.recovery_s == 140 - 70


def test_another_stage_begins_at_its_own_first_step() -> None:
    sft = Trace("sft", 1, 0, 0, 10 * SECOND, orderly=True, steps=steps(0, 1, range(1, 11)))
    rlvr = replace(sft, stage="rlvr", submitted=10 * SECOND, started=10 * SECOND, ended=20 * SECOND,
                   steps=steps(10, 1, range(1, 11)))  # fmt: skip
    assert account("r", [sft, rlvr]).time[B.RECOMPUTE] == 0


def test_ranks_restarted_inside_the_job() -> None:
    """A hang of 20 s until it is noticed at 60, new ranks at 65, one step again."""
    trace = Trace(
        "sft", 1, 0, 0, 110 * SECOND, orderly=True,
        steps=(*steps(10, 10, range(1, 4)), *steps(80, 10, range(3, 6))),
        phases=(Span(0, 10 * SECOND, B.LOAD), Span(65 * SECOND, 80 * SECOND, B.LOAD)),
        restarts=(60 * SECOND,),
    )  # fmt: skip
    run = account("r", [trace])
    assert seconds(run.time) == {
        B.LOAD: 25, B.PRODUCTIVE: 50, B.RECOMPUTE: 10, B.STALLED: 20, B.STARTUP: 5,
    }  # fmt: skip
    assert run.failures == 1 and run.rhythm.recovery_s == 40


def test_a_suspended_job_does_no_work() -> None:
    """For 30 s from the middle of the second step on."""
    still = Span(55 * SECOND, 85 * SECOND, B.SUSPENDED)
    run = account("r", [replace(CLEAN, phases=(*CLEAN.phases, still))])
    assert run.time[B.SUSPENDED] == 30 * 16 * SECOND
    assert run.time[B.PRODUCTIVE] == 20 * 16 * SECOND
    assert sum(run.time.values()) - run.time[B.QUEUE] == run.allocated


def test_a_job_that_waits_or_never_worked() -> None:
    waiting = Trace("sft", 1, 0, None, 60 * SECOND, running=True, devices=4)
    assert seconds(account("r", [waiting]).time) == {B.QUEUE: 240}
    assert account("r", [waiting]).goodput is None
    died = Trace("sft", 1, 0, 10 * SECOND, 60 * SECOND)
    assert seconds(account("r", [died]).time) == {B.QUEUE: 10, B.STARTUP: 50}


@pytest.mark.parametrize(("now", "stalled"), [(45, 0), (500, 440)])
def test_the_step_under_way_counts_until_it_takes_too_long(now: int, stalled: int) -> None:
    running = Trace(
        "sft", 1, 0, 0, now * SECOND, running=True, steps=steps(0, 10, range(1, 4)),
    )  # fmt: skip
    assert account("r", [running]).time[B.STALLED] == stalled * SECOND


moments = st.integers(-(10**6), 10**7)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Any record at all: overlapping, unordered, outside of the job, with clocks that differ."""
    submitted = draw(moments)
    started = draw(st.none() | st.integers(submitted, submitted + 10**6))
    spans = draw(
        st.lists(
            st.builds(
                Span, moments, moments, st.sampled_from((B.LOAD, B.CHECKPOINT, B.EVALUATION))
            ),
            max_size=8,
        )
    )
    return Trace(
        draw(st.sampled_from(("sft", "rlvr"))), 1, submitted, started,
        draw(st.integers(started or submitted, (started or submitted) + 10**7)),
        draw(st.booleans()), draw(st.booleans()), draw(st.integers(1, 4)), draw(st.integers(1, 6)),
        draw(st.integers(1, 8)), None,
        tuple(draw(st.lists(st.builds(StepSpan, moments, moments, st.integers(1, 9)), max_size=8))),
        tuple(spans), (), tuple(draw(st.lists(moments, max_size=3))),
    )  # fmt: skip


@given(st.lists(traces(), max_size=4))
def test_the_buckets_add_up_to_what_was_allocated_exactly(recorded: list[Trace]) -> None:
    run = account("r", recorded)
    paid = sum(value for bucket, value in run.time.items() if bucket is not B.QUEUE)
    assert paid == run.allocated
    assert all(value >= 0 for value in run.time.values())


@given(moments, st.integers(0, 10**6), st.lists(st.builds(
    Span, moments, moments,
    st.sampled_from((B.STARTUP, B.LOAD, B.PRODUCTIVE, B.CHECKPOINT, B.SUSPENDED)),
), max_size=10))  # fmt: skip
def test_cutting_agrees_with_looking_at_every_moment(
    start: int, length: int, spans: list[Span]
) -> None:
    order = (
        B.STALLED, B.STARTUP, B.LOAD, B.PRODUCTIVE, B.RECOMPUTE, B.EVALUATION, B.CHECKPOINT,
        B.SUSPENDED,
    )  # fmt: skip
    end = start + length
    edges = sorted(
        {start, end, *(edge for span in spans for edge in span[:2] if start < edge < end)}
    )
    expected = dict.fromkeys(order, 0)
    for low, high in pairwise(edges):
        covering = [span.bucket for span in spans if span.start <= low and high <= span.end]
        expected[max(covering, key=order.index, default=B.STALLED)] += high - low
    assert cut(start, end, spans) == expected


# --- money


def test_what_a_run_costs() -> None:
    prices = PriceTable(per_gpu_hour=1.0, by_gpu={"h100": 2.5}, per_cpu_hour=0.04)
    hour = replace(CLEAN, started=0, ended=3600 * SECOND)
    assert account("r", [hour]).cost(prices) == pytest.approx(3 * 8 * 2.5)
    assert account("r", [replace(hour, gpu="")]).cost(prices) == pytest.approx(3 * 8 * 1.0)
    assert account("r", [replace(hour, gpu=None)]).cost(prices) == pytest.approx(3 * 8 * 0.04)


# --- the outlook


def test_the_best_interval_is_youngs() -> None:
    """Young 1974: T = sqrt(2 * cost of a save * mean time between failures)."""
    assert best_interval(18, 3600) == pytest.approx(360)


@given(st.floats(0.01, 60), st.floats(3600, 10**6), st.floats(0.2, 5))
def test_no_other_interval_beats_the_best(save_s: float, mtbf_s: float, factor: float) -> None:
    best = best_interval(save_s, mtbf_s)
    assert ettr(save_s, best, 60, mtbf_s) >= ettr(save_s, factor * best, 60, mtbf_s) - 1e-12


def test_the_outlook_says_nothing_without_a_save() -> None:
    assert outlook(Rhythm(None, None, None), 300) == []
    rows = outlook(Rhythm(5.0, 1800.0, None), 120)
    # 1 - 5/1800 - (900 + 120) / (3 * 3600)
    assert rows[1].ettr == pytest.approx(0.902778, abs=1e-6)
    assert rows[1].best_ettr > rows[1].ettr


# --- from a run's folder


def write_run(root: Path) -> Path:
    """Two attempts on two CPU nodes of four cores: killed after step 3, then to the end."""
    run = root / "runs" / "dsm-1"
    (run / "sft" / "attempts").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    for number, begin, first, last, code in ((1, 1000.0, 1, 3, 137), (2, 1100.0, 3, 6, 0)):
        folder = run / "sft" / "attempts" / str(number)
        folder.mkdir()
        (folder / "handle.json").write_text('{"key": "k", "launcher": "slurm", "job_id": "7"}')
        os.utime(folder / "handle.json", (begin - 20, begin - 20))
        (folder / "job.json").write_text(
            json.dumps(
                {"key": "k", "nodes": 2, "processes_per_node": 2, "cpus_per_process": 2,
                 "gpus_per_node": 0, "slurm": {"gres": ""}}
            )
        )  # fmt: skip
        (folder / "nodes.txt").write_text("n1\nn2\n")
        (folder / "started.json").write_text(f'{{"started": {begin}}}')
        (folder / "exit.json").write_text(
            f'{{"exit_code": {code}, "terminated": false, "ended": {begin + 80}}}'
        )
        for index, step in enumerate(range(first, last + 1)):
            metrics.append(
                folder / "metrics.jsonl",
                metrics.StepMetrics(
                    "sft", number, step, 6, 0.0, 1.0, 0.0, 0.0, 10, 5.0,
                    time=begin + 30 + 5 * (index + 1),
                ),
            )  # fmt: skip
        (folder / "phases.jsonl").write_text(
            json.dumps({"phase": "load", "ended": begin + 30, "seconds": 20.0}) + "\n"
            + json.dumps({"phase": "checkpoint", "ended": begin + 41, "seconds": 1.0}) + "\n{to"
        )  # fmt: skip
    return run


def test_a_runs_folder_is_read(tmp_path: Path) -> None:
    run = account_run(write_run(tmp_path))
    first, second = run.attempts
    assert seconds(first.time) == {
        B.QUEUE: 160, B.STARTUP: 80, B.LOAD: 160, B.PRODUCTIVE: 112, B.CHECKPOINT: 8,
        B.STALLED: 280,
    }  # fmt: skip
    assert seconds(second.time)[B.RECOMPUTE] == 5 * 8
    assert second.trace.orderly and not first.trace.orderly
    assert run.rhythm.save_s == 1.0


def test_the_command_prints_tables_and_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path)
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\nper_cpu_hour: 0.05\n")
    assert main([str(run), "--prices", str(prices)]) == 0
    shown = capsys.readouterr().out
    assert "recompute" in shown and "EUR" in shown and "outlook" in shown
    assert main([str(run), "--json", "--prices", str(prices)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["allocated_device_seconds"] == 2 * 8 * 80
    assert document["cost"] == {"amount": pytest.approx(1280 / 3600 * 0.05), "currency": "EUR"}
    assert document == as_json(account_run(run), PriceTable.from_yaml(prices))


def test_the_prices_that_a_run_was_started_with_are_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path)
    write_prices(run, PriceTable())
    assert read_prices(run) is None, "nobody said what it costs"
    write_prices(run, PriceTable(per_cpu_hour=0.5))
    assert main([str(run), "--json"]) == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    assert cost == {"amount": pytest.approx(1280 / 3600 * 0.5), "currency": "USD"}


def test_lines_without_times_are_laid_before_the_files_last_change(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    path = run / "sft" / "attempts" / "2" / "metrics.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**line, "time": 0.0}) + "\n" for line in lines))
    os.utime(path, (1150, 1150))
    second = account_run(run).attempts[1].trace
    assert [step.end / SECOND for step in second.steps] == [1135, 1140, 1145, 1150]


def test_a_folder_that_is_no_run_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UserError, match=r"no run\.json"):
        account_run(tmp_path)
    assert main([str(tmp_path)]) == 1
    assert "run.json" in capsys.readouterr().err


def test_a_phase_is_noted_when_it_ends(tmp_path: Path) -> None:
    with phases.timed(tmp_path, "publish"):
        pass
    with pytest.raises(ZeroDivisionError), phases.timed(tmp_path, "checkpoint"):
        _ = 1 / 0
    [phase] = phases.read_phases(tmp_path)
    assert phase.phase == "publish" and 0 <= phase.seconds < 60
    assert 0 < phases.process_age_s() < 24 * 3600

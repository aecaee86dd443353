"""The page of a run, written from a run's folder: what it says, and that nothing in it acts."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from playwright.sync_api import Page

from evaluation.verifiers import Verdict
from training import metrics, phases
from training.attempt_history import Times, write_outcome
from training.cluster.job import JobState, JobStatus
from training.cluster.recovery import Cause, Ending, Resubmit, Stop
from training.memory_watch import Notice, Usage
from training.metrics import StepMetrics, read_history
from training.rollouts import Rollout, RolloutLog, append
from training.run_curves import POINTS, curves_of, thinned
from training.run_events import EVENTS_NAME, EventLog, RunEvent
from training.run_page import main, render, write_page
from training.run_record import RunFolder, RunRecord
from training.run_story import spoken
from training.trainers.settings import StageName
from training.trainers.spec import StageOutcome
from workspace import publish
from workspace.errors import UserError

CHROMIUM = Path("/usr/bin/chromium")
HOSTILE = "</script><img src=x onerror=alert(1)><b>&amp;"
START = 1_796_000_000.0
DONE = Resubmit("killed by SIGKILL on gpu-07", ("gpu-07",))


class WrittenRun:
    """A run's folder, written by the same functions as a real one's."""

    def __init__(self, root: Path, stages: tuple[StageName, ...] = ("sft", "rlvr")) -> None:
        self.folder = RunFolder(root)
        self.now = self.submitted = START
        noise = random.Random(7)
        self.noise = noise
        record = RunRecord(
            run=root.name,
            key="k" * 16,
            settings={"sft": {"learning_rate": 2e-4}, "note": HOSTILE},
            lineage={"dataset": "d" * 16, "base_model": "b" * 16, "code": "0.1.0+abc"},
            base_model="smollm2-135m-instruct",
            stages=stages,
            created="2026-11-28T12:00:00Z",
        )
        self.folder.write_record(record)
        rows = [{"doc_id": f"doc{number % 9}", "text": "x"} for number in range(45)]
        path = self.folder.data(stages[0])
        path.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pylist(rows), path)

    def events(self, stage: StageName, attempt: int) -> EventLog:
        return EventLog(self.folder.root / EVENTS_NAME, stage=stage, attempt=attempt)

    def say(self, stage: StageName, attempt: int, event: str, detail: str, **more: Any) -> None:
        self.events(stage, attempt).add(RunEvent(self.now, event, detail, stage, attempt, **more))

    def train(
        self, stage: StageName, attempt: int, first: int, last: int, total: int, step_s: float = 3.0
    ) -> None:
        attempt_dir = self.folder.stage(stage).attempt(attempt)
        attempt_dir.mkdir(parents=True, exist_ok=True)
        (attempt_dir / "stderr.log").write_text("log")
        job = {"nodes": 2, "processes_per_node": 8, "gpus_per_node": 8}
        (attempt_dir / "job.json").write_text(json.dumps(job))
        (attempt_dir / "handle.json").write_text('{"launcher": "slurm"}')
        started = attempt_dir / "started.json"
        if not started.exists():
            started.write_text(json.dumps({"started": self.now}))
            with (attempt_dir / phases.PHASES_NAME).open("a") as stream:
                load = phases.Phase("load", self.now + 50, 40)
                stream.write(json.dumps(vars(load)) + "\n")
            self.now += 50
        lines = []
        for step in range(first, last + 1):
            self.now += step_s
            done = step / total
            extra: dict[str, float] = {}
            if stage == "sft":
                extra["mean_token_accuracy"] = 0.4 + 0.4 * done
                if step % max(1, total // 12) == 0:
                    extra["eval_loss"] = 1.1 + 2.2 * math.exp(-4 * done)
            else:
                extra |= {
                    "reward": 0.2 + 0.5 * done + self.noise.uniform(-0.1, 0.1),
                    "reward/exact": 0.3 + 0.5 * done,
                    "reward/verilog_sim": 0.1 + 0.4 * done,
                    "no_verdict_rate": 0.02,
                    "gate_reject_rate": 0.01 if step % 9 else 0.1,
                    "gate_reject/exact": 0.0,
                    "gate_reject/verilog_sim": 0.02 if step % 9 else 0.2,
                    "frac_reward_zero_std": 0.5 - 0.3 * done,
                }
            figures = StepMetrics(
                stage=stage,
                attempt=attempt,
                step=step,
                total_steps=total,
                epoch=3 * done,
                loss=1.0 + 2.5 * math.exp(-5 * done) + self.noise.uniform(-0.12, 0.12),
                learning_rate=2e-4 * (1 - done),
                grad_norm=math.exp(self.noise.gauss(0.2, 0.5)) * (40 if step == total // 3 else 1),
                tokens=round(4000 + self.noise.uniform(-800, 800)),
                seconds=step_s * self.noise.uniform(0.9, 1.2),
                data_wait_s=0.02,
                checkpoint_s=0.9 if step % max(2, total // 20) == 1 and step > 1 else 0.0,
                memory={"host": (5.2 + 0.6 * done) * (1 << 30)},
                extra=extra,
                time=self.now,
            )
            lines.append(figures)
        path = attempt_dir / metrics.METRICS_NAME
        with path.open("a") as stream:
            stream.writelines(json.dumps(vars(line)) + "\n" for line in lines)

    def close(
        self, stage: StageName, attempt: int, cause: Cause, decision: Resubmit | Stop, step: int
    ) -> None:
        ending = Ending(attempt, 1, cause, ("gpu-07", "gpu-08"), ("gpu-07",), newest_step=step)
        state = JobState.SUCCEEDED if cause is Cause.DONE else JobState.FAILED
        write_outcome(
            self.folder.stage(stage).attempt(attempt),
            JobStatus(state),
            [ending],
            decision,
            Times(self.submitted, self.submitted + 40, self.now),
        )
        if cause is Cause.DONE:
            outcome = StageOutcome(
                stage=stage, attempt=attempt, steps=step, rows=45, rejects={}, tokens=1, last={}
            )
            publish.write_text(
                self.folder.stage(stage).root / "result.json", outcome.model_dump_json()
            )

    def hold(self, stage: StageName, attempt: int, ranks: int) -> None:
        """Memory of some ranks."""
        folder = self.folder.stage(stage).attempt(attempt) / "memory"
        folder.mkdir()
        for rank in range(ranks):
            usage = Usage((5 << 30) + rank, 40 << 30, 50 << 30, 60 << 30, 80 << 30)
            (folder / f"rank-{rank:04d}.jsonl").write_text(json.dumps(usage._asdict()) + "\n")

    def sample(self, stage: StageName, attempt: int, total: int, last: int) -> None:
        log = RolloutLog(self.folder.stage(stage).attempt(attempt), group=3, total_steps=total)
        verdicts = [
            Verdict(1.0, "pass"), Verdict(0.0, "mismatch"), Verdict(None, "infra:timeout"),
        ]  # fmt: skip
        for step in range(1, last + 1):
            question = [{"role": "user", "content": f"How many channels does U{step} have?"}]
            answers = [f"Step by step.\nAnswer: {step}", HOSTILE, ""]
            log.record(step, [question] * 3, answers, verdicts)


def interrupted_run(root: Path, total: int = 400) -> WrittenRun:
    """SFT that lost a node at three quarters and finished, then RLVR on its way."""
    run = WrittenRun(root)
    run.say("sft", 1, "submitted", "slurm job 811, from step 0")
    run.now += 40
    run.say("sft", 1, "started", "generation 1 from step 0", nodes=("gpu-07", "gpu-08"))
    run.train("sft", 1, 1, 3 * total // 4, total)
    answers = [
        Rollout(100, "What is 2 + 2?", text, None, kind)
        for text, kind in ((HOSTILE, "evaluation"), ("4", "reference"))
    ]
    append(run.folder.stage("sft").attempt(1), answers)
    run.say("sft", 1, "node_lost", HOSTILE, nodes=("gpu-07",))
    run.say("sft", 1, "blamed", "gpu-07: a node was lost; left out for 24 hours", nodes=("gpu-07",))
    again = 3 * total // 4 - total // 20
    run.say("sft", 1, "attempt_ended", f"a node was lost; newest checkpoint: step {again}")
    run.close("sft", 1, Cause.NODE_LOST, DONE, again)
    run.say("sft", 1, "decided", "a new job without gpu-07")
    run.now += 60
    run.submitted = run.now
    run.say("sft", 2, "submitted", f"slurm job 812, from step {again}, without gpu-07")
    run.train("sft", 2, again + 1, total, total)
    run.say("sft", 2, "finished", "done", facts={"cause": "done"})
    run.close("sft", 2, Cause.DONE, Stop("done"), total)
    run.say("rlvr", 1, "submitted", "slurm job 813, from step 0")
    run.train("rlvr", 1, 1, 120, 400)
    notice = Notice(run.now, "memory_leak", 0, 118, "host memory grows by 2.01 MiB a step")
    run.say("rlvr", 1, notice.event, notice.detail)
    run.sample("rlvr", 1, 400, 120)
    run.hold("rlvr", 1, 16)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> WrittenRun:
    return interrupted_run(tmp_path_factory.mktemp("runs") / "dsm-0b3c")


def test_the_header_says_where_the_run_is(run: WrittenRun) -> None:
    page = render(run.folder.root, now=run.now + 5)
    # 280 steps of about 3 s each are left.
    assert "Running: reinforcement learning, step 120 of 400, about 15 minutes left" in page
    quiet = render(run.folder.root, now=run.now + 1200)
    assert "No step for 20 minutes: reinforcement learning, step 120 of 400" in quiet


def test_what_happened_is_told_in_plain_words(run: WrittenRun) -> None:
    page = render(run.folder.root, now=run.now)
    for words in ("A node is lost", "gpu-07", "without gpu-07", "Memory leaks", "2.01 MiB a step"):
        assert words in page
    assert "of 9 documents" in page and "smollm2-135m-instruct" in page
    assert "sft/attempts/1/stderr.log" in page
    assert "Memory of the ranks" in page and '<td class="n">20 %</td>' in page
    assert "of the machines’ time trained new steps (goodput)" in page and "recompute" in page


def test_other_peoples_texts_stay_texts(run: WrittenRun) -> None:
    page = render(run.folder.root, now=run.now)
    assert "<img" not in page
    assert page.count("</script>") == 2
    assert "&lt;/script&gt;&lt;img src=x" in page


def test_links_lead_to_the_run_from_wherever_the_page_lies(run: WrittenRun, tmp_path: Path) -> None:
    target = write_page(run.folder.root, tmp_path / "elsewhere" / "page.html")
    inside = os.path.relpath(run.folder.root, target.parent)
    assert f'href="{inside}/sft/attempts/1/stderr.log"' in target.read_text()


def test_marks_of_restarts_and_saves(run: WrittenRun) -> None:
    curves = curves_of(read_history(run.folder.root / "sft"))
    assert curves["restarts"] == [{"step": 281, "reached": 300, "attempt": 2}]
    assert 20 in curves["saves"] and curves["total"] == 400
    titles = {chart["title"] for chart in curves["charts"]}
    assert {"Loss", "Learning rate", "Gradient norm", "Tokens per second"} <= titles
    assert "Model FLOPs utilisation" not in titles, "there is none on CPUs"
    loss = next(chart for chart in curves["charts"] if chart["title"] == "Loss")
    assert [series["name"] for series in loss["series"]] == ["training", "unseen rows"]


def test_cheats_are_shown_by_kind_of_verifier(run: WrittenRun) -> None:
    charts = {c["title"]: c for c in curves_of(read_history(run.folder.root / "rlvr"))["charts"]}
    chart = charts["Refused as cheats, by verifier"]
    assert chart["unit"] == "%"
    highest = {series["name"]: max(series["high"]) for series in chart["series"]}
    assert highest == {"exact": 0.0, "verilog_sim": 20.0}
    assert "refused as cheats" in {
        series["name"] for series in charts["Answers that teach nothing"]["series"]
    }


def test_a_hundred_thousand_steps_keep_their_spike() -> None:
    points = [(step, 1.0) for step in range(1, 100_001)]
    points[70_123] = (70_124, 50.0)
    series = thinned("loss", points, len(points))
    assert len(series.x) <= POINTS and series.x[-1] == 100_000
    at = series.high.index(50.0)
    assert series.x[at - 1] < 70_124 <= series.x[at]
    assert series.low == [1.0] * len(series.x)
    span = 167
    assert series.y[at] == pytest.approx(1 + 49 / span, rel=1e-4)


def test_a_run_that_was_given_up_and_one_that_is_stopped(tmp_path: Path) -> None:
    for name, decision, words in (
        ("given-up", Stop("three endings without a newer checkpoint"), "Given up at step 30 of 90"),
        ("stopped", Stop("stopped on request"), "Stopped on request at step 30 of 90"),
    ):
        run = WrittenRun(tmp_path / name, ("sft",))
        assert "has not started yet" in render(run.folder.root, now=run.now)
        run.train("sft", 1, 1, 30, 90)
        run.close("sft", 1, Cause.RANK_FAILED, decision, 20)
        assert words in render(run.folder.root, now=run.now)


def test_no_run_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UserError, match=r"no run\.json"):
        write_page(tmp_path)
    assert main([str(tmp_path)]) == 1
    assert "no run.json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 second"), (45.4, "45 seconds"), (840, "14 minutes"), (7500, "2 h 5 min"),
     (273_600, "3 d 4 h")],
)  # fmt: skip
def test_durations_in_words(seconds: float, words: str) -> None:
    assert spoken(seconds) == words


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Callable[..., Page]]:
    """Opens a page in a browser; fails on any complaint of it."""
    if not CHROMIUM.exists():
        pytest.skip("Debian's chromium is not installed")
    from playwright.sync_api import sync_playwright

    complaints: list[str] = []
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"]
        )

        def opened(path: Path, **context: Any) -> Page:
            page = chromium.new_page(viewport={"width": 1400, "height": 900}, **context)
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", lambda message: complaints.append(message.text))
            page.goto(path.as_uri())
            return page

        yield opened
        chromium.close()
    assert complaints == []


@pytest.mark.browser
def test_curves_and_answers_in_a_browser(
    run: WrittenRun, browser: Callable[..., Page], tmp_path: Path
) -> None:
    target = tmp_path / "run.html"
    publish.write_text(target, render(run.folder.root, beside=tmp_path, now=run.now))
    page = browser(target)
    assert page.title() == "Run dsm-0b3c"
    charts = page.locator(".charts").first
    assert charts.locator("figure").count() == 7
    assert charts.locator("figure").first.locator(".restart").count() == 1
    chart = charts.locator("svg").first
    chart.hover(position={"x": 200, "y": 80})
    tip = page.locator(".tip").text_content() or ""
    assert tip.startswith("step ") and "training " in tip and "unseen rows " in tip
    label = chart.get_attribute("aria-label") or ""
    assert label.startswith("Loss: ") and "at step 400" in label

    assert page.text_content("#step-name") == "rlvr, step 120"
    assert HOSTILE in (page.text_content("#rollouts") or "")
    page.focus("#step")
    page.keyboard.press("Home")
    assert page.text_content("#step-name") == "sft, step 100"
    assert HOSTILE in (page.text_content("#rollouts") or "")
    assert "the row’s own answer" in (page.text_content("#rollouts") or "")
    page.keyboard.press("ArrowRight")
    assert page.text_content("#step-name") == "rlvr, step 1"
    assert "How many channels does U1 have?" in (page.text_content("#rollouts") or "")
    assert "no reward: infra:timeout" in (page.text_content("#rollouts") or "")
    if keep := os.environ.get("DSM_SCREENSHOTS"):
        page.screenshot(path=str(Path(keep) / "run-page.png"), full_page=True)
        dark = browser(target, color_scheme="dark")
        dark.screenshot(path=str(Path(keep) / "run-page-dark.png"), full_page=True)

"""The task of training: supervises the run's jobs, shows steps and losses, obeys a cancellation.

A cancelled flow run is noticed in three ways, whichever comes first: the wait loop reads the state
of its own flow run; the worker ends this process; the worker's hook on cancellation finds that the
process could not end its job. That hook is called by the worker that started the process alone: a
cancelled flow run whose worker was replaced, and a suspended one whose process is gone, are left to
`reconcile`. Each time the job checkpoints and ends, and the same run goes on from there when it is
started again. A process that dies without either leaves its job running; the next start finds it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
import prefect.runtime.flow_run
from prefect import task
from prefect.client.schemas.objects import FlowRun, State
from prefect.exceptions import TerminationSignal
from prefect.states import Cancelled

from tasks import artifacts
from tasks._markdown import run_markdown
from tasks._options import task_options
from tasks.stopping import StopCheck
from training.cluster.flow_state import FlowRecord, supervised_by
from training.cluster.reconcile import reconcile, request_cancel
from training.failure_texts import TrainingStoppedError
from training.metrics import StepMetrics
from training.progress import TrainProgress
from training.run_events import described
from training.run_story import tell
from training.train import TrainConfig, train
from workspace.environment import CHECKOUT
from workspace.paths import Workspace
from workspace.progress import Advance, clock
from workspace.stage import StageResult

log = logging.getLogger(__name__)

LOG_EVERY_S = 15.0
TABLE_ROWS = 60
_SAID_BY_STATE = {"submitted", "reattached", "running"}


@task(**{**task_options("train", "supervise", "train {config.name}"), "retries": 0})
def supervise(config: TrainConfig) -> StageResult | State[StageResult]:
    """Train to the end; cancelled when the flow run should stop.

    No retries: the supervisor itself follows a failed job by another one.
    """
    stop_wanted = StopCheck()
    with TrainingDisplay() as display:
        try:
            result = train(
                config, observe=display.observe, should_stop=stop_wanted, flow=own_flow()
            )
        except TerminationSignal:
            if stop_wanted.now():
                stop(config)
            raise
        except TrainingStoppedError as error:
            return Cancelled(message=str(error))  # no traceback in the logs
    artifacts.show_table("train", "steps", display.step_rows(), "train: loss and speed by step")
    return result


def own_flow() -> FlowRecord:
    """The flow run that this process works for, and the one at the top of it."""
    run = prefect.runtime.flow_run
    return FlowRecord(str(run.id), str(run.root_flow_run_id or run.id))


def stop(config: TrainConfig) -> None:
    """Let the running job of `config` checkpoint and end, from a supervisor that found it."""
    try:
        train(config, should_stop=lambda: True)
    except TrainingStoppedError as error:
        log.info("%s", error)


def cancel_jobs(flow_run: FlowRun) -> None:
    """End the jobs of the runs that `flow_run` supervised, from a process that does not (a hook).

    By what the runs themselves say: their data may have changed since, and a run that a newer flow
    run took over is that one's.
    """
    # A worker may have been started elsewhere: relative paths are from the checkout, as in flows.
    workspace = Workspace(CHECKOUT / flow_run.parameters["config"]["workspace"])
    cancelled = [run.name for run in supervised_by(workspace, str(flow_run.id))]
    for name in cancelled:
        request_cancel(workspace, name)
    if not cancelled:
        log.info("no job to cancel: no unfinished run of this flow run is in %s", workspace.root)
        return
    for finding in reconcile(workspace):
        log.info("%s", finding.describe())


class TrainingDisplay:
    """Shows `TrainProgress` as a progress bar per stage, log lines, the run's story and a table."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._stage = ""
        self._shown = 0
        self._advance: Advance = lambda n: None
        self._steps: list[StepMetrics] = []
        self._detail = ""
        self._last_line = 0.0
        self._page: Path | None = None
        self._page_time = 0
        self._story = artifacts.KeptReport("train", "page", "train: the run's story")

    def __enter__(self) -> TrainingDisplay:
        return self

    def __exit__(self, *error: object) -> None:
        self._tell()
        self._stack.close()

    def observe(self, progress: TrainProgress) -> None:
        """Called by the supervisor after each look at the job."""
        self._steps += progress.new_steps
        self._page = progress.page
        self._tell()
        if progress.total_steps and progress.stage != self._stage:
            self._open(progress.stage, progress.total_steps)
        if progress.step > self._shown:
            self._advance(progress.step - self._shown)
            self._shown = progress.step
        self._say(progress)
        for event in progress.new_events:
            if event.event not in _SAID_BY_STATE:
                log.info("%s, attempt %d: %s", event.stage, event.attempt, described(event))

    def step_rows(self) -> list[dict[str, object]]:
        """At most `TABLE_ROWS` steps, evenly spread, the last one included."""
        stride = max(1, -(-len(self._steps) // TABLE_ROWS))
        shown = self._steps[::-1][::stride][::-1]
        return [
            {
                "stage": step.stage,
                "step": step.step,
                "loss": round(step.loss, 4),
                "reward": step.extra.get("reward"),
                "tokens_per_s": round(step.tokens_per_s, 1),
            }
            for step in shown
        ]

    def _tell(self) -> None:
        """Show the run's story anew when its page was: seldom enough, and at the end.

        A server that does not answer then does not end a training.
        """
        if self._page is None or (written := changed(self._page)) == self._page_time:
            return
        self._page_time = written
        told = tell(self._page.parent)
        if told is None:
            return
        try:
            self._story.show(run_markdown(told, self._page))
        except httpx.HTTPError as error:
            log.warning("the run's story in the UI is not up to date: %s", error)

    def _open(self, stage: str, total: int) -> None:
        self._stack.close()
        self._stage, self._shown = stage, 0
        self._advance = self._stack.enter_context(
            artifacts.progress(f"train-{stage}", total, "steps", lines=False)  # `_say` has the loss
        )

    def _say(self, progress: TrainProgress) -> None:
        detail = f"{progress.state} {progress.detail}".strip()
        if detail != self._detail:
            self._detail = detail
            log.info("%s, attempt %d: %s", progress.stage, progress.attempt, detail)
        if progress.new_steps and time.monotonic() - self._last_line >= LOG_EVERY_S:
            self._last_line = time.monotonic()
            log.info("%s", describe_step(progress))


def changed(path: Path) -> int:
    """When the file at `path` was written, in nanoseconds; 0 when it is not there."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def describe_step(progress: TrainProgress) -> str:
    """For example `sft: step 12/90, loss 2.310, 198 tokens/s, 05:10 left`."""
    parts = [f"{progress.stage}: step {progress.step}/{progress.total_steps}"]
    formats: tuple[tuple[float | None, Callable[[float], str]], ...] = (
        (progress.loss, lambda value: f"loss {value:.3f}"),
        (progress.reward, lambda value: f"reward {value:.3f}"),
        (progress.tokens_per_s, lambda value: f"{value:.0f} tokens/s"),
        (progress.eta_s, lambda value: f"{clock(value)} left"),
    )
    parts += [show(value) for value, show in formats if value is not None]
    return ", ".join(parts)

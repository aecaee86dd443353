"""What the supervisor does after each way in which an attempt can end."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from training import checkpoints
from training.cluster.blacklist import Blacklist
from training.cluster.evidence import ending_facts
from training.cluster.job import Job, JobHandle, JobState, JobStatus, Nodes
from training.cluster.recovery import Cause, Ending, Limits
from training.failure_texts import TrainingFailedError, TrainingStoppedError
from training.progress import TrainProgress
from training.run_events import EVENTS_NAME, EventLog, read_events
from training.run_record import StageFolder
from training.supervise import Recovery, Watch, run_stage
from training.trainers.spec import StageOutcome
from workspace import publish
from workspace.errors import TransientError, UserError

Act = Callable[["ScriptedLauncher", Job], JobStatus]


class ScriptedLauncher:
    """Each submitted job plays the next act, which may write checkpoints or the result."""

    def __init__(self, folder: StageFolder, acts: list[Act]) -> None:
        self.folder = folder
        self.acts = acts
        self.jobs: list[Job] = []
        self.cancelled: list[str] = []
        self.silent_polls = 0
        self.cluster: Nodes | None = None

    def nodes(self) -> Nodes | None:
        return self.cluster

    def submit(self, job: Job) -> JobHandle:
        if job.key not in [known.key for known in self.jobs]:
            self.jobs.append(job)
        return JobHandle(job.key, "scripted", str(len(self.jobs)))

    def poll(self, handle: JobHandle, job: Job) -> JobStatus:
        if self.silent_polls:
            self.silent_polls -= 1
            raise TransientError("no answer from the controller")
        return self.acts[int(handle.job_id) - 1](self, job)

    def cancel(self, handle: JobHandle, job: Job) -> None:
        self.cancelled.append(job.key)


def ends(state: JobState, *, step: int = 0, nodes: tuple[str, ...] = ()) -> Act:
    """An attempt that ends in `state`, with a checkpoint at `step` unless that is 0."""

    def act(launcher: ScriptedLauncher, job: Job) -> JobStatus:
        if step:
            save_checkpoint(launcher.folder, step, int(job.attempt_dir.name))
        return JobStatus(state, "scripted", nodes=nodes)

    return act


def up(*names: str, down: tuple[str, ...] = ()) -> Nodes:
    return Nodes(frozenset({*names, *down}), frozenset(names), frozenset())


def succeeds(launcher: ScriptedLauncher, job: Job) -> JobStatus:
    outcome = StageOutcome(
        stage="sft",
        attempt=int(job.attempt_dir.name),
        steps=5,
        rows=1,
        rejects={},
        tokens=1,
        last={},
    )
    publish.write_text(launcher.folder.root / "result.json", outcome.model_dump_json())
    return JobStatus(JobState.SUCCEEDED)


def save_checkpoint(folder: StageFolder, step: int, attempt: int) -> None:
    path = folder.checkpoints / str(attempt) / ".incomplete" / f"checkpoint-{step}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "model.safetensors").write_bytes(b"w")
    checkpoints.complete(path, step=step, attempt=attempt, world_size=1, attempts=folder.attempts)


@pytest.fixture
def folder(tmp_path: Path) -> StageFolder:
    return StageFolder(tmp_path / "sft", "sft")


def run(
    folder: StageFolder,
    launcher: ScriptedLauncher,
    *,
    max_attempts: int = 10,
    recovery: Recovery | None = None,
    observe: Callable[[TrainProgress], None] = lambda progress: None,
    should_stop: Callable[[], bool] = lambda: False,
    spares: int = 0,
) -> StageOutcome:
    def make_job(attempt: int, exclude_nodes: tuple[str, ...], nodes: int) -> Job:
        attempt_dir = folder.attempt(attempt)
        attempt_dir.mkdir(parents=True, exist_ok=True)
        return Job(
            f"dsm-r-sft-{attempt}",
            (),
            attempt_dir,
            nodes=nodes or 2,
            spares=spares,
            exclude_nodes=exclude_nodes,
        )

    recovery = recovery or Recovery()
    recovery = recovery._replace(limits=Limits(attempts=max_attempts))
    watch = Watch(observe, should_stop, 0.0)
    return run_stage(folder, launcher, make_job, watch, recovery)


@pytest.mark.parametrize("state", [JobState.RESUMABLE, JobState.FAILED, JobState.LOST])
def test_an_interrupted_attempt_is_followed_by_another(
    folder: StageFolder, state: JobState
) -> None:
    launcher = ScriptedLauncher(folder, [ends(state, step=5), succeeds])
    assert run(folder, launcher).attempt == 2
    assert (folder.attempt(1) / "outcome.json").exists()


def test_three_attempts_without_a_newer_checkpoint_are_enough(folder: StageFolder) -> None:
    failing = ends(JobState.FAILED)
    launcher = ScriptedLauncher(folder, [ends(JobState.FAILED, step=5), *[failing] * 9])
    with pytest.raises(TrainingFailedError, match="3 attempts in a row") as caught:
        run(folder, launcher)
    assert len(launcher.jobs) == 4, "the first one made progress"
    assert str(folder.attempt(4)) in str(caught.value), "says where the logs are"


def test_progress_every_time_goes_on_to_the_budget(folder: StageFolder) -> None:
    acts = [ends(JobState.RESUMABLE, step=step) for step in range(1, 9)]
    launcher = ScriptedLauncher(folder, acts)
    with pytest.raises(TrainingFailedError, match="max_attempts"):
        run(folder, launcher, max_attempts=6)
    assert len(launcher.jobs) == 6


def test_the_error_shows_the_end_of_the_log(folder: StageFolder) -> None:
    def crash(launcher: ScriptedLauncher, job: Job) -> JobStatus:
        (job.attempt_dir / "stderr.log").write_text("loading\r" * 500 + "\nOutOfMemory: 3 GB\n")
        return JobStatus(JobState.FAILED, "exit code 1")

    with pytest.raises(TrainingFailedError, match="OutOfMemory: 3 GB") as caught:
        run(folder, ScriptedLauncher(folder, [crash] * 3))
    assert len(str(caught.value)) < 1000, "progress bars are folded"


def test_a_fault_of_the_user_is_not_tried_again(folder: StageFolder) -> None:
    def refuse(launcher: ScriptedLauncher, job: Job) -> JobStatus:
        publish.write_json(job.attempt_dir / "error.json", {"message": "no rows; add some"})
        return JobStatus(JobState.NEVER_AGAIN)

    launcher = ScriptedLauncher(folder, [refuse])
    with pytest.raises(UserError, match="no rows; add some"):
        run(folder, launcher)
    assert len(launcher.jobs) == 1


def test_a_job_cancelled_from_outside_stays_cancelled(folder: StageFolder) -> None:
    launcher = ScriptedLauncher(folder, [ends(JobState.CANCELLED, step=3)])
    with pytest.raises(TrainingStoppedError, match="step 3"):
        run(folder, launcher)
    assert len(launcher.jobs) == 1


def test_lost_nodes_are_left_out_from_then_on(folder: StageFolder) -> None:
    acts = [
        ends(JobState.LOST, step=1, nodes=("n3",)),
        ends(JobState.LOST, step=2, nodes=("n1",)),
        succeeds,
    ]
    launcher = ScriptedLauncher(folder, acts)
    run(folder, launcher)
    assert [job.exclude_nodes for job in launcher.jobs] == [(), ("n3",), ("n1", "n3")]


def test_a_stop_request_cancels_the_job(folder: StageFolder) -> None:
    launcher = ScriptedLauncher(folder, [ends(JobState.RUNNING)])
    with pytest.raises(TrainingStoppedError, match="stopped on request"):
        run(folder, launcher, should_stop=lambda: bool(launcher.jobs))
    assert launcher.cancelled == ["dsm-r-sft-1"]


def test_a_job_stopped_while_it_waits_goes_on_at_the_next_call(folder: StageFolder) -> None:
    def waits(launcher: ScriptedLauncher, job: Job) -> JobStatus:
        return JobStatus(JobState.CANCELLED if launcher.cancelled else JobState.PENDING)

    launcher = ScriptedLauncher(folder, [waits, succeeds])
    with pytest.raises(TrainingStoppedError, match="stopped on request"):
        run(folder, launcher, should_stop=lambda: bool(launcher.jobs))
    assert run(folder, launcher).attempt == 2


@pytest.mark.parametrize("before", [JobState.PENDING, JobState.RUNNING])
def test_ctrl_c_closes_the_attempt_and_the_next_call_goes_on(
    folder: StageFolder, before: JobState
) -> None:
    """A job that we cancelled was not cancelled by somebody else."""

    def lives(launcher: ScriptedLauncher, job: Job) -> JobStatus:
        return JobStatus(JobState.CANCELLED if launcher.cancelled else before)

    def press(progress: TrainProgress) -> None:
        if not launcher.cancelled:
            raise KeyboardInterrupt

    launcher = ScriptedLauncher(folder, [lives, succeeds])
    with pytest.raises(KeyboardInterrupt):
        run(folder, launcher, observe=press)
    outcome = json.loads((folder.attempt(1) / "outcome.json").read_text())
    assert outcome["decision"]["reason"] == "stopped on request"
    assert run(folder, launcher).attempt == 2


def test_a_silent_scheduler_does_not_hide_a_stop(folder: StageFolder) -> None:
    launcher = ScriptedLauncher(folder, [ends(JobState.RUNNING)])

    def stop() -> bool:
        launcher.silent_polls = 1
        return bool(launcher.jobs)

    with pytest.raises(TrainingStoppedError, match="stopped on request"):
        run(folder, launcher, should_stop=stop)


def test_a_stop_request_between_attempts_starts_no_job(folder: StageFolder) -> None:
    launcher = ScriptedLauncher(folder, [])
    with pytest.raises(TrainingStoppedError):
        run(folder, launcher, should_stop=lambda: True)
    assert launcher.jobs == []


def test_a_restarted_supervisor_watches_the_same_attempt(folder: StageFolder) -> None:
    def die(progress: TrainProgress) -> None:
        raise SystemError("the supervisor dies here")

    launcher = ScriptedLauncher(folder, [ends(JobState.RUNNING)])
    with pytest.raises(SystemError):
        run(folder, launcher, observe=die)
    assert launcher.cancelled == [], "a crash leaves the job alone"
    launcher.acts = [succeeds]
    assert run(folder, launcher).attempt == 1
    assert len(launcher.jobs) == 1


def test_ctrl_c_cancels_the_job(folder: StageFolder) -> None:
    def interrupt(progress: TrainProgress) -> None:
        raise KeyboardInterrupt

    launcher = ScriptedLauncher(folder, [ends(JobState.RUNNING)])
    with pytest.raises(KeyboardInterrupt):
        run(folder, launcher, observe=interrupt)
    assert launcher.cancelled == ["dsm-r-sft-1"]


def test_a_silent_scheduler_is_asked_again(folder: StageFolder) -> None:
    launcher = ScriptedLauncher(folder, [succeeds])
    launcher.silent_polls = 3
    seen: list[str] = []
    run(folder, launcher, observe=lambda progress: seen.append(progress.detail))
    assert seen[:3] == ["no news: no answer from the controller"] * 3
    assert len(launcher.jobs) == 1


def test_a_finished_stage_needs_no_job(folder: StageFolder) -> None:
    launcher = ScriptedLauncher(folder, [succeeds])
    run(folder, launcher)
    run(folder, launcher)
    assert len(launcher.jobs) == 1


def test_success_without_a_result_is_a_failure(folder: StageFolder) -> None:
    launcher = ScriptedLauncher(folder, [ends(JobState.SUCCEEDED)] * 3)
    with pytest.raises(TrainingFailedError):
        run(folder, launcher)


def story(folder: StageFolder) -> list[tuple[str, int, str]]:
    events = read_events(folder.root.parent / EVENTS_NAME)
    return [(event.event, event.attempt, event.detail) for event in events]


def test_a_restarted_supervisor_knows_the_bad_nodes(folder: StageFolder, tmp_path: Path) -> None:
    recovery = Recovery(blacklist=Blacklist(tmp_path / "bad-nodes.jsonl"))

    def die(progress: TrainProgress) -> None:
        if progress.attempt == 2:
            raise SystemError("the supervisor dies here")

    launcher = ScriptedLauncher(folder, [ends(JobState.LOST, step=1, nodes=("n3",))])
    launcher.acts.append(ends(JobState.LOST, step=2, nodes=("n1",)))
    with pytest.raises(SystemError):
        run(folder, launcher, recovery=recovery, observe=die)
    launcher.acts.append(succeeds)
    run(folder, launcher, recovery=recovery)
    assert [job.exclude_nodes for job in launcher.jobs] == [(), ("n3",), ("n1", "n3")]
    blamed = [detail for event, _, detail in story(folder) if event == "blamed"]
    assert [detail.split(";")[0] for detail in blamed] == [
        "n3: a node was lost on n3: scripted",
        "n1: a node was lost on n1: scripted",
    ]


def test_another_run_of_the_workspace_leaves_them_out_too(tmp_path: Path) -> None:
    recovery = Recovery(blacklist=Blacklist(tmp_path / "bad-nodes.jsonl"), worlds=(2,))
    first = StageFolder(tmp_path / "runs" / "a" / "sft", "sft")
    acts = [ends(JobState.LOST, step=1, nodes=("n3",)), succeeds]
    run(first, ScriptedLauncher(first, acts), recovery=recovery)
    second = StageFolder(tmp_path / "runs" / "b" / "sft", "sft")
    launcher = ScriptedLauncher(second, [succeeds])
    launcher.cluster = up("n1", "n2", "n3")
    run(second, launcher, recovery=recovery)
    third = StageFolder(tmp_path / "runs" / "c" / "sft", "sft")
    small = ScriptedLauncher(third, [succeeds])
    small.cluster = up("n1", "n3")
    run(third, small, recovery=recovery)
    assert launcher.jobs[0].exclude_nodes == ("n3",)
    assert small.jobs[0].exclude_nodes == (), "better a bad node than a job that never starts"


def test_nodes_that_are_up_again_come_back_where_others_are_wanting(
    folder: StageFolder, tmp_path: Path
) -> None:
    """Two of three are lost one after the other; all three are up when it counts."""
    recovery = Recovery(blacklist=Blacklist(tmp_path / "bad-nodes.jsonl"), worlds=(2,))
    acts = [
        ends(JobState.LOST, step=1, nodes=("n2",)),
        ends(JobState.LOST, step=2, nodes=("n3",)),
        succeeds,
    ]
    launcher = ScriptedLauncher(folder, acts)
    launcher.cluster = up("n1", "n2", "n3")
    run(folder, launcher, recovery=recovery)
    assert [job.exclude_nodes for job in launcher.jobs] == [(), ("n2",), ("n3",)]


def test_a_node_that_is_down_is_not_counted_on(folder: StageFolder, tmp_path: Path) -> None:
    """n3 is down for a reason of its own: n2, lost but up again, rather than to wait for it."""
    recovery = Recovery(blacklist=Blacklist(tmp_path / "bad-nodes.jsonl"), worlds=(2,))
    acts = [ends(JobState.LOST, step=1, nodes=("n2",)), succeeds]
    launcher = ScriptedLauncher(folder, acts)
    launcher.cluster = up("n1", "n2", down=("n3",))
    run(folder, launcher, recovery=recovery)
    assert [job.exclude_nodes for job in launcher.jobs] == [(), ()]


def test_a_run_waits_for_nodes_that_are_down_without_its_doing(folder: StageFolder) -> None:
    launcher = ScriptedLauncher(folder, [ends(JobState.RESUMABLE, step=1), succeeds])
    launcher.cluster = up("n1", down=("n2",))
    assert run(folder, launcher, recovery=Recovery(worlds=(2,))).attempt == 2


@pytest.mark.parametrize(("nodes", "spares"), [("n1 n2 n3 n4", 1), ("n1 n2 n3", 0)])
def test_a_spare_is_no_reason_to_wait_for_a_node_that_is_left_out(
    folder: StageFolder, tmp_path: Path, nodes: str, spares: int
) -> None:
    recovery = Recovery(blacklist=Blacklist(tmp_path / "bad-nodes.jsonl"), worlds=(2,))
    acts = [ends(JobState.LOST, step=1, nodes=("n2",)), succeeds]
    launcher = ScriptedLauncher(folder, acts)
    launcher.cluster = up(*nodes.split())
    run(folder, launcher, recovery=recovery, spares=1)
    assert [job.spares for job in launcher.jobs] == [1, spares]
    assert launcher.jobs[1].exclude_nodes == ("n2",)


def test_silence_is_held_against_a_node_for_an_hour(folder: StageFolder, tmp_path: Path) -> None:
    def falls_silent(launcher: ScriptedLauncher, job: Job) -> JobStatus:
        save_checkpoint(launcher.folder, 5, 1)
        silent = Ending(1, 1, Cause.NODE_SILENT, ("n1", "n2"), ("n2",), "no word from n2", 0, 5)
        log = EventLog(job.attempt_dir / EVENTS_NAME)
        log.say("ended", "no word", generation=1, facts=ending_facts(silent))
        return JobStatus(JobState.LOST, "no word from n2", 1)

    recovery = Recovery(blacklist=Blacklist(tmp_path / "bad-nodes.jsonl"), worlds=(2,))
    launcher = ScriptedLauncher(folder, [falls_silent, succeeds])
    launcher.cluster = up("n1", "n2", "n3")
    run(folder, launcher, recovery=recovery)
    assert launcher.jobs[1].exclude_nodes == ("n2",)
    [blamed] = [detail for event, _, detail in story(folder) if event == "blamed"]
    assert blamed.endswith("left out of jobs for 1 hour")


def test_a_job_that_waits_in_vain_is_replaced_by_a_smaller_one(folder: StageFolder) -> None:
    def waits(launcher: ScriptedLauncher, job: Job) -> JobStatus:
        return JobStatus(JobState.CANCELLED if launcher.cancelled else JobState.PENDING)

    launcher = ScriptedLauncher(folder, [waits, succeeds])
    run(folder, launcher, recovery=Recovery(worlds=(2, 1), shrink_after_s=0.01))
    assert [job.nodes for job in launcher.jobs] == [2, 1]
    assert ("decided", 1, "a new job on 1 nodes") in story(folder)


def test_the_run_tells_its_story(folder: StageFolder) -> None:
    def fails(launcher: ScriptedLauncher, job: Job) -> JobStatus:
        log = EventLog(job.attempt_dir / EVENTS_NAME)
        log.say("started", generation=1, nodes=("n1", "n2"))
        save_checkpoint(launcher.folder, 5, 1)
        ended = Ending(1, 1, Cause.RANK_FAILED, ("n1", "n2"), ("n2",), "ValueError: no", 0, 5)
        log.say("ended", "ValueError", generation=1, facts=ending_facts(ended))
        return JobStatus(JobState.FAILED, "rank 1", 1)

    run(folder, ScriptedLauncher(folder, [fails, succeeds]))
    told = story(folder)
    assert [event for event, _, _ in told] == [
        "submitted", "started", "ended", "attempt_ended", "decided", "submitted", "finished",
    ]  # fmt: skip
    assert told[3][2] == "a rank failed on n2: ValueError: no; newest checkpoint: step 5"
    assert told[4][2] == "a new job"
    outcome = json.loads((folder.attempt(1) / "outcome.json").read_text())
    assert (outcome["cause"], outcome["decision"]["action"]) == ("rank_failed", "resubmit")


def test_a_run_that_was_given_up_starts_with_a_clean_slate(folder: StageFolder) -> None:
    failing = ends(JobState.FAILED)
    launcher = ScriptedLauncher(folder, [failing] * 3)
    with pytest.raises(TrainingFailedError):
        run(folder, launcher)
    launcher.acts += [failing, failing, succeeds]
    assert run(folder, launcher).attempt == 6


def test_the_budget_outlives_the_supervisor(folder: StageFolder) -> None:
    def die_in_third(progress: TrainProgress) -> None:
        if progress.attempt == 3:
            raise SystemError("the supervisor dies here")

    launcher = ScriptedLauncher(folder, [ends(JobState.FAILED)] * 9)
    with pytest.raises(SystemError):
        run(folder, launcher, observe=die_in_third)
    with pytest.raises(TrainingFailedError, match="3 attempts in a row"):
        run(folder, launcher)
    assert len(launcher.jobs) == 3


def test_what_the_ranks_say_of_their_memory_is_told_once(folder: StageFolder) -> None:
    """In the run's events and to the caller, also when a second supervisor reads it again."""
    notice = {
        "time": 5.0, "event": "memory_leak", "rank": 3, "step": 148, "detail": "grows",
    }  # fmt: skip

    def leaks(launcher: ScriptedLauncher, job: Job) -> JobStatus:
        path = job.attempt_dir / "memory" / "rank-0003.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"step": 1, "host": 7}) + "\n" + json.dumps(notice) + "\n")
        return JobStatus(JobState.RUNNING)

    seen: list[TrainProgress] = []
    launcher = ScriptedLauncher(folder, [leaks])
    with pytest.raises(KeyboardInterrupt):
        run(folder, launcher, observe=seen.append, should_stop=interrupted_after(3))
    launcher.acts = [succeeds]
    run(folder, launcher, observe=seen.append)

    def told() -> list[str]:
        return [e.detail for e in read_events(events_file) if e.event == "memory_leak"]

    events_file = folder.root.parent / EVENTS_NAME
    assert told() == ["rank 3 at step 148: grows"]
    assert [e.detail for p in seen for e in p.new_events if e.event == "memory_leak"] == told()


def interrupted_after(looks: int) -> Callable[[], bool]:
    left = iter([False] * looks)

    def asked() -> bool:
        try:
            return next(left)
        except StopIteration:
            raise KeyboardInterrupt from None

    return asked

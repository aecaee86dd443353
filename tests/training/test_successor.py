"""The job that waits behind a running attempt: who may begin the next one, whatever dies when."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from slurm_in_memory import Scheduler

from training.cluster import successor
from training.cluster.job import Job, JobHandle, JobState
from training.cluster.slurm import SlurmLauncher, SlurmOptions, read_handle
from training.cluster.slurm_output import JobInfo
from training.cluster.successor import (
    Answer,
    Scene,
    Verdict,
    answer,
    ask,
    claim,
    read_verdict,
    settle,
    successor_folder,
)
from training.cluster.successor_queue import Fate, SuccessorQueue, Want, fate_of, prepared
from workspace import publish
from workspace.errors import TransientError

WANT = Want((), 2)


@pytest.mark.parametrize(
    ("scene", "waited_s", "expected"),
    [
        (Scene(2, 1), 0, Answer.WAIT),
        (Scene(2, 1), 30, Answer.GO_ALONE),
        (Scene(2, 1, former_exit=1), 30, Answer.GO_ALONE),
        (Scene(2, 1, former_exit=75), 30, Answer.GO_ALONE),
        (Scene(2, 1, former_exit=0), 30, Answer.LEAVE),
        (Scene(2, 1, former_exit=93), 0, Answer.LEAVE),
        (Scene(2, 1, former_cancelled=True), 30, Answer.LEAVE),
        (Scene(2, 1, former_stopped=True), 30, Answer.LEAVE),
        (Scene(2, 1, stage_done=True), 30, Answer.LEAVE),
        (Scene(2, 3), 30, Answer.LEAVE),
        (Scene(2, 2), 30, Answer.LEAVE),
        (Scene(2, 1, Verdict.TAKEN), 0, Answer.GO),
        (Scene(2, 2, Verdict.TAKEN), 0, Answer.GO),
        (Scene(2, 2, Verdict.ALONE, owns_attempt=True), 0, Answer.GO),
        (Scene(2, 3, Verdict.TAKEN), 0, Answer.LEAVE),
        (Scene(2, 2, Verdict.TAKEN, stage_done=True), 0, Answer.LEAVE),
        (Scene(2, 1, Verdict.WITHDRAWN), 30, Answer.LEAVE),
        (Scene(2, 2, Verdict.TAKEN, closed=True), 0, Answer.LEAVE),
        (Scene(2, 1, Verdict.TAKEN, former_exit=1, former_cancelled=True), 0, Answer.GO),
    ],
)
def test_what_a_started_successor_does(scene: Scene, waited_s: float, expected: Answer) -> None:
    assert answer(scene, waited_s=waited_s, patience_s=30)[0] is expected


def info(state: str, *nodes: str) -> JobInfo:
    return JobInfo("7", state, "k", nodes=nodes)


@pytest.mark.parametrize(
    ("job", "want", "expected"),
    [
        (None, WANT, Fate.FORGET),
        (info("CANCELLED"), WANT, Fate.FORGET),
        (info("COMPLETED"), WANT, Fate.FORGET),
        (info("PENDING"), WANT, Fate.NARROW),
        (info("PENDING"), Want(("n1",), 2), Fate.NARROW),
        (info("PENDING"), Want((), 1), Fate.REPLACE),
        (info("RUNNING", "n1", "n2"), WANT, Fate.TAKE_OVER),
        (info("RUNNING", "n1", "n2"), Want(("n3",), 2), Fate.TAKE_OVER),
        (info("RUNNING", "n1", "n2"), Want(("n2",), 2), Fate.REPLACE),
        (info("RUNNING", "n1", "n2"), Want((), 1), Fate.REPLACE),
    ],
)
def test_what_the_supervisor_does_with_it(job: JobInfo | None, want: Want, expected: Fate) -> None:
    assert fate_of(job, 2, want) is expected


@pytest.mark.parametrize(
    ("spares", "within", "expected"),
    [(1, 3, Fate.NARROW), (1, 2, Fate.REPLACE), (0, 2, Fate.NARROW), (0, 1, Fate.NARROW)],
)
def test_a_waiting_job_does_not_wait_for_a_spare_that_is_left_out(
    spares: int, within: int, expected: Fate
) -> None:
    assert fate_of(info("PENDING"), 2, Want(("n1",), 2, within), spares) is expected


class Site:
    """A stage whose first attempt runs, and a cluster in memory."""

    def __init__(self, root: Path) -> None:
        self.stage = root / "runs" / "r" / "sft"
        self.first, self.second = (self.stage / "attempts" / name for name in ("1", "2"))
        self.first.mkdir(parents=True)
        self.scheduler = Scheduler()
        self.folder = successor_folder(self.second)
        self.running = JobHandle("dsm-r-sft-1", "slurm", "100")
        publish.write_json(self.first / "handle.json", vars(self.running))
        publish.write_json(self.first / "started.json", {"started": 1.0})

    def queue(self) -> SuccessorQueue:
        """Of a supervisor that was just started."""
        return SuccessorQueue(SlurmLauncher(SlurmOptions(successor=True), self.scheduler))

    def submit(self) -> JobHandle | None:
        into = prepared(self.second)
        if not self.second.exists():
            into.mkdir(parents=True, exist_ok=True)
            (into / "spec.json").write_text("{}")
        job = Job("dsm-r-sft-2", ("-c", "pass"), self.second, nodes=2)
        return self.queue().submit(job, self.running)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_the_waiting_job_fences_nothing_off_and_names_what_it_waits_for(site: Site) -> None:
    site.submit()
    assert not site.second.exists()
    script = (site.folder / "job.sbatch").read_text()
    assert "#SBATCH --dependency=afternotok:100\n" in script
    assert "#SBATCH --kill-on-invalid-dep=yes\n" in script
    assert f"exec bash {site.second}/job.sbatch" in script


def test_a_restarted_supervisor_submits_no_second_one(site: Site) -> None:
    first = site.submit()
    assert site.submit() == first
    (site.folder / "handle.json").unlink()  # killed between sbatch and its note
    assert site.submit() == first
    assert site.scheduler.submitted == 1


@pytest.mark.parametrize("killed_after", ["nothing", "verdict", "rename"])
def test_taking_over_is_finished_after_a_kill(site: Site, killed_after: str) -> None:
    handle = site.submit()
    if killed_after in ("verdict", "rename"):
        settle(site.folder, Verdict.TAKEN)
    if killed_after == "rename":
        prepared(site.second).rename(site.second)
    for _ in range(2):
        settled = site.queue().settle(site.second, Want(("n9",), 2))
        assert (settled.verdict, settled.handle) == (Verdict.TAKEN, handle)
    assert read_handle(site.second) == handle
    assert (site.second / "spec.json").exists()
    assert (site.scheduler.submitted, site.scheduler.cancelled) == (1, [])
    assert site.submit() is None


@pytest.mark.parametrize("killed_after", ["nothing", "verdict"])
def test_a_withdrawn_one_is_cancelled_and_never_begins(site: Site, killed_after: str) -> None:
    handle = site.submit()
    assert handle is not None
    if killed_after == "verdict":
        settle(site.folder, Verdict.WITHDRAWN)
    for _ in range(2):
        assert site.queue().withdraw(site.second).verdict is Verdict.WITHDRAWN
    assert site.scheduler.cancelled == [(handle.job_id, None)]
    assert not ask(site.folder, handle.job_id, patience_s=0)
    assert not site.second.exists()


def test_nodes_are_left_out_while_it_waits_and_a_running_one_on_them_is_replaced(
    site: Site, tmp_path: Path
) -> None:
    handle = site.submit()
    assert handle is not None
    site.queue().settle(site.second, Want(("n1",), 2))
    assert site.scheduler.excluded == {handle.job_id: ("n1",)}

    other = Site(tmp_path / "other")
    handle = other.submit()
    assert handle is not None
    other.scheduler.set(handle.job_id, state="RUNNING", nodes=("n1", "n2"))
    settled = other.queue().settle(other.second, Want(("n1",), 2))
    assert settled.verdict is Verdict.WITHDRAWN
    assert other.scheduler.cancelled == [(handle.job_id, None)]


def test_one_that_starts_while_nodes_are_taken_from_it_is_looked_at_again(site: Site) -> None:
    handle = site.submit()
    assert handle is not None
    site.scheduler.starts_on_exclude = ("n1", "n2")
    settled = site.queue().settle(site.second, Want(("n1",), 2))
    assert settled.verdict is Verdict.WITHDRAWN


def test_only_the_first_verdict_holds(tmp_path: Path) -> None:
    for trial in range(20):
        folder = tmp_path / str(trial)
        folder.mkdir()
        with ThreadPoolExecutor(6) as pool:
            holds = list(pool.map(lambda verdict: settle(folder, verdict), [*Verdict] * 2))  # noqa: B023
        assert len(set(holds)) == 1
        assert read_verdict(folder) is holds[0]
        assert [path.name for path in folder.iterdir()] == ["verdict.json"]


def test_alone_it_goes_on_as_the_next_attempt(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(successor, "SlurmClient", lambda: site.scheduler)
    handle = site.submit()
    assert handle is not None
    assert ask(site.folder, handle.job_id, patience_s=0)
    assert read_handle(site.second) == handle
    [line] = (site.second / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["event"] == "successor_alone"
    settled = site.queue().settle(site.second, WANT)
    assert (settled.verdict, settled.handle) == (Verdict.ALONE, handle)
    assert ask(site.folder, handle.job_id, patience_s=0), "Slurm started the job again"


def test_after_a_cancelled_job_it_does_not_go_on_alone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(successor, "SlurmClient", lambda: site.scheduler)
    handle = site.submit()
    assert handle is not None
    site.scheduler.jobs["100"] = JobInfo("100", "CANCELLED", site.running.key)
    assert not ask(site.folder, handle.job_id, patience_s=0)
    assert not site.second.exists()
    (site.first / "started.json").unlink()
    assert ask(site.folder, handle.job_id, patience_s=0), "a failing prolog is nobody's wish"


def test_a_silent_controller_says_nothing_about_the_former_job(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(job_id: str) -> JobInfo | None:
        raise TransientError("no answer")

    monkeypatch.setattr(successor, "SlurmClient", lambda: site.scheduler)
    handle = site.submit()
    assert handle is not None
    monkeypatch.setattr(site.scheduler, "job", silent)
    assert ask(site.folder, handle.job_id, patience_s=0)


def test_a_claim_done_twice_is_done_once(site: Site) -> None:
    handle = site.submit()
    assert handle is not None
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: claim(site.folder, handle), range(4)))
    assert read_handle(site.second) == handle
    assert JobState.PENDING is SlurmLauncher(client=site.scheduler).poll(
        handle, Job(handle.key, (), site.second)
    ).state  # fmt: skip

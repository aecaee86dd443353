"""A trainer without a model, for experiments in which the model is not the point.

    python -m benchmarks.chaos.trainer SETTINGS.json

It keeps the whole contract of the real trainers: torchrun's variables, a synchronous reduction
over all ranks in every step (a TCP star through rank 0), heartbeats, the stop file agreed by all
ranks, checkpoints by `training.checkpoints` with their fence, resuming from the newest complete
one, exit codes, `result.json`. The "weights" are a hash chained over the samples of each step, so
that a sample lost, repeated or out of order changes the end result. `ledger.jsonl` lists what each
step trained on.

`faults/hang-<rank>` in the stage's folder makes that rank hang, once; `faults/stuck-<rank>` makes
it wait in the kernel. A step's work is `step_s` of sleep: many ranks on two cores then disturb each
other little, and what is measured is the recovery, not the machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import random
import signal
import sys
import time
from dataclasses import asdict, dataclass
from multiprocessing.connection import Client, Connection, Listener
from pathlib import Path
from typing import Any

from training import checkpoints, metrics, phases
from training.cluster import heartbeat
from training.cluster.heartbeat import Section
from training.cluster.job import EXIT_DONE, EXIT_RESUME, STOP_FILE
from training.memory_watch import MemoryWatch
from training.metrics import METRICS_NAME, StepMetrics
from training.trainers.shared_settings import MemorySettings
from workspace import publish

_CONNECT_S = 60.0
_PR_SET_PDEATHSIG = 1
_CLONE_VM, _CLONE_VFORK = 0x100, 0x4000


@dataclass(frozen=True)
class Settings:
    """What to train and how to misbehave. `slow_rank`, `bug_rank`, `hang_rank`: -1 for none."""

    stage: str  # folder with attempts/ and checkpoints/
    steps: int = 100
    step_s: float = 0.1
    save_every: int = 10
    save_s: float = 0.0  # that a save takes, before its last file
    payload_bytes: int = 1000
    samples_per_step: int = 8
    samples: int = 100
    slow_rank: int = -1
    slow_by: float = 0.3
    slow_from: int = 0
    slow_node: str = ""  # whose ranks are slow
    bug_rank: int = -1
    bug_step: int = 0
    hang_rank: int = -1
    hang_step: int = 0
    leak_rank: int = -1
    leak_bytes: int = 0  # that it keeps, a step
    memory_limit_gib: float = 0.0  # of a node, watched as the real trainers do; 0: not watched
    deaf: bool = False  # writes no heartbeats
    survives: bool = False  # its agent's death, and goes on alone: a zombie

    def write(self, path: Path) -> Path:
        publish.write_json(path, asdict(self))
        return path


class Star:
    """Sums over all ranks through rank 0."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank = rank
        self._peers: list[Connection] = []
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if world_size == 1:
            return
        if rank == 0:
            listener = Listener(address, backlog=world_size)
            self._peers = [listener.accept() for _ in range(world_size - 1)]
            listener.close()
        else:
            self._peers = [_connect(address)]

    def all_reduce(self, value: int) -> int:
        """The largest of all ranks' values; nobody goes on before all have come."""
        if self._rank == 0:
            largest = max([value, *(int(peer.recv()) for peer in self._peers)])
            for peer in self._peers:
                peer.send(largest)
            return largest
        for peer in self._peers:
            peer.send(value)
            value = int(peer.recv())
        return value


def _connect(address: tuple[str, int]) -> Connection:
    deadline = time.monotonic() + _CONNECT_S
    while True:
        try:
            return Client(address)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


class Trainer:
    """One rank."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.stage = Path(settings.stage)
        self.attempt_dir = Path(os.environ["DSM_ATTEMPT_DIR"])
        self.attempt = int(self.attempt_dir.name)
        self.rank, self.world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.beat = heartbeat.Heartbeat(None) if settings.deaf else heartbeat.of_this_rank()
        self.stopped = False
        for number in (signal.SIGTERM, signal.SIGUSR2):
            signal.signal(number, self._on_signal)
        if settings.survives:
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
            if os.getpgrp() != os.getpid():  # srun's own tasks lead their group already
                os.setsid()
        self.parent = os.getppid()
        self.memory = self._watch_memory()
        self.leaked: list[bytearray] = []
        self.step, self.weights = self._resume()
        self.star = Star(self.rank, self.world_size)
        self.last = time.monotonic()

    def train(self) -> int:
        settings = self.settings
        if self._result.exists():
            return EXIT_DONE
        if self.rank == 0:
            phases.append(self.attempt_dir, "load", phases.process_age_s())
        self.beat.section(Section.STEP)
        self.last = time.monotonic()
        while self.step < settings.steps:
            own_s = self._work(self.step + 1)
            stop = self._agree(int(self._asked_to_stop()))
            self.step += 1
            self._learn()
            self.beat.step(self.step, own_s)
            if self.memory is not None:
                self.memory.after_step(self.step, settings.steps)
            if stop and self.step < settings.steps:
                self._save()
                return EXIT_RESUME
            if self.step % settings.save_every == 0:
                self._save()
        self._finish()
        return EXIT_DONE

    def _work(self, step: int) -> float:
        settings, started = self.settings, time.monotonic()
        if (self.rank, step) == (settings.bug_rank, settings.bug_step):
            raise ValueError(f"row {step * settings.samples_per_step} has no answer")
        if (self.rank, step) == (settings.hang_rank, settings.hang_step) and self._first_time():
            load_batch_for_ever()
        if self._is_told_to("hang"):
            load_batch_for_ever()
        if self._is_told_to("stuck"):
            wait_in_kernel()
        if self.rank == settings.leak_rank:
            self.leaked.append(bytearray(b"x") * settings.leak_bytes)
        here = os.environ.get("SLURMD_NODENAME", "-") == settings.slow_node
        slow = (here or self.rank == settings.slow_rank) and step > settings.slow_from
        time.sleep(settings.step_s * (1 + settings.slow_by * slow))
        return time.monotonic() - started

    def _agree(self, value: int) -> int:
        try:
            return self.star.all_reduce(value)
        except (EOFError, OSError):
            if self.settings.survives and os.getppid() != self.parent:
                self._haunt()
            raise

    def _haunt(self) -> None:
        """As a writer whose node lost touch: save, say what came of it, and stay."""
        while not self._replaced():
            time.sleep(0.1)
        self.star = Star(0, 1)
        self.step += 1
        try:
            self._save()
            said = "published"
        except checkpoints.FencedError as error:
            said = f"fenced: {error}"
        publish.write_text(self.stage / f"zombie-{os.getpid()}", said)
        load_batch_for_ever()

    def _replaced(self) -> bool:
        """By a newer generation, or, where nobody counts generations, by ranks that train."""
        try:
            written = (self.attempt_dir / checkpoints.GENERATION_NAME).read_text(encoding="utf-8")
        except FileNotFoundError:
            return int(read_ledger(self.stage)[-1]["pid"]) != os.getpid()
        return int(written) > checkpoints.own_generation()

    def _is_told_to(self, fault: str) -> bool:
        """Once for each file."""
        file = self.stage / "faults" / f"{fault}-{self.rank}"
        if not file.exists():
            return False
        file.unlink()
        return True

    def _watch_memory(self) -> MemoryWatch | None:
        limit_gib = self.settings.memory_limit_gib
        if not limit_gib:
            return None
        settings = MemorySettings(limit_gib=limit_gib)
        return MemoryWatch(self.attempt_dir, rank=self.rank, settings=settings, gpu=False)

    def _first_time(self) -> bool:
        """Whether the hang has not struck yet: it is not to stop the run for good."""
        try:
            (self.stage / "hung").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _learn(self) -> None:
        rows = samples_of(self.step, self.settings)
        self.weights = hashlib.sha256(f"{self.weights}{rows}".encode()).hexdigest()
        if self.rank == 0:
            line = {
                "step": self.step, "samples": rows, "attempt": self.attempt,
                "generation": checkpoints.own_generation(), "time": time.time(), "pid": os.getpid(),
            }  # fmt: skip
            with (self.stage / "ledger.jsonl").open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")
            self._tell_accountant()

    def _tell_accountant(self) -> None:
        """The step as the real trainers write it; there is nothing to say of a loss."""
        settings, now = self.settings, time.monotonic()
        seconds, self.last = now - self.last, now
        step = StepMetrics(
            "sft", self.attempt, self.step, settings.steps,
            self.step * settings.samples_per_step / settings.samples, loss=0.0, learning_rate=0.0,
            grad_norm=0.0, tokens=settings.samples_per_step, seconds=seconds,
        )  # fmt: skip
        metrics.append(self.attempt_dir / METRICS_NAME, step)

    def _save(self) -> None:
        self.beat.section(Section.CHECKPOINT)
        began = time.monotonic()
        if self.rank == 0:
            folder = checkpoints.unfinished_folder(self.stage / "checkpoints", self.attempt)
            folder /= f"checkpoint-{self.step}"
            folder.mkdir(parents=True, exist_ok=True)
            payload = random.Random(self.step).randbytes(self.settings.payload_bytes)
            (folder / "payload.bin").write_bytes(payload)
            time.sleep(self.settings.save_s)
            state = {"step": self.step, "weights": self.weights}
            (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
            checkpoints.complete(
                folder,
                step=self.step,
                attempt=self.attempt,
                world_size=self.world_size,
                attempts=self.attempt_dir.parent,
            )
            checkpoints.prune(self.stage / "checkpoints", keep=2, attempt=self.attempt)
        self._agree(0)
        if self.rank == 0:
            phases.append(self.attempt_dir, "checkpoint", time.monotonic() - began)
        self.beat.section(Section.STEP)

    def _resume(self) -> tuple[int, str]:
        if self.rank == 0:
            checkpoints.prune(self.stage / "checkpoints", keep=2, attempt=self.attempt)
        newest = checkpoints.newest_complete(self.stage / "checkpoints")
        if newest is None:
            return 0, ""
        state = json.loads((newest.path / "state.json").read_text(encoding="utf-8"))
        return int(state["step"]), str(state["weights"])

    def _finish(self) -> None:
        if self.rank:
            return
        checkpoints.require_current(self.attempt_dir.parent, self.attempt)
        outcome = {
            "stage": "sft", "attempt": self.attempt, "steps": self.step, "rows": self.step,
            "rejects": {}, "tokens": 0, "last": {},
        }  # fmt: skip
        publish.write_text(self.stage / "weights", self.weights)
        publish.write_json(self._result, outcome)

    @property
    def _result(self) -> Path:
        return self.stage / "result.json"

    def _asked_to_stop(self) -> bool:
        full = self.memory is not None and self.memory.wants_restart
        return self.stopped or full or (self.rank == 0 and (self.attempt_dir / STOP_FILE).exists())

    def _on_signal(self, *_: object) -> None:
        self.stopped = True


def load_batch_for_ever() -> None:
    """Where a data loader would wait for a file system that does not answer."""
    while True:
        time.sleep(3600)


def wait_in_kernel() -> None:
    """As a process does that waits for a driver, state D: for a child of vfork(2), which waits."""
    libc = ctypes.CDLL(None)
    stack = ctypes.create_string_buffer(1 << 16)
    top = (ctypes.addressof(stack) + len(stack)) & ~15
    flags = _CLONE_VM | _CLONE_VFORK | signal.SIGCHLD
    libc.clone(libc.pause, ctypes.c_void_p(top), ctypes.c_int(flags), None)


def samples_of(step: int, settings: Settings) -> list[int]:
    """The samples of a step: passes over all of them, each in its own order."""
    first = (step - 1) * settings.samples_per_step
    return [_sample(at, settings.samples) for at in range(first, first + settings.samples_per_step)]


def _sample(position: int, samples: int) -> int:
    epoch, at = divmod(position, samples)
    order = list(range(samples))
    random.Random(epoch).shuffle(order)
    return order[at]


def undisturbed_weights(settings: Settings) -> str:
    """What a run without faults ends with."""
    weights = ""
    for step in range(1, settings.steps + 1):
        rows = samples_of(step, settings)
        weights = hashlib.sha256(f"{weights}{rows}".encode()).hexdigest()
    return weights


def read_ledger(stage: Path) -> list[dict[str, Any]]:
    """What was trained, in the order of writing; a torn last line is left out."""
    try:
        text = (stage / "ledger.jsonl").read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


if __name__ == "__main__":
    values = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    sys.exit(Trainer(Settings(**values)).train())

"""A rank of an external program: starts it, watches it, and keeps our contract around it.

    python -m training.trainers.external SPEC.json

In: `external/launch.json` beside the specification (`training.external.prepare`). Out, as far as
the program allows, what our own trainers give:

- asked to stop, the program is ended and the exit code is 75: programs do not save on request, so
  the steps since its last checkpoint are trained again;
- an attempt goes on from the program's newest checkpoint, by the program's own means;
- each new checkpoint is marked under `checkpoints/`, so that progress can be seen;
- the weights of the last step become `<stage>/model/`, `result.json` last, exit code 0;
- 93 only for what was found before the program started; its own exit code otherwise.

Steps and losses stay in the program's own log, and a program that hangs is not noticed: this
process says that it is alive, which is all it knows.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from training import checkpoints
from training.base_model import check_model_folder
from training.cluster.heartbeat import Section, of_this_rank
from training.cluster.job import EXIT_NEVER_AGAIN, EXIT_RESUME
from training.external.prepare import program_of, require_program
from training.external.program import LAUNCH_NAME, Launch, Program
from training.trainers import entry
from training.trainers.spec import StageOutcome, TrainSpec
from training.trainers.stopping import StopRequest
from workspace import publish
from workspace.errors import UserError

POLL_S = 1.0
MARK_EVERY_S = 15.0
TERM_GRACE_S = 60.0
_DRIVER_DONE = "driver-done"  # in the attempt's folder: the Ray cluster is over
_ABOUT_A_MODEL = ("*.json", "*.jinja", "*.model", "*.txt")


def train(spec: TrainSpec, stop: StopRequest) -> StageOutcome | None:
    """Run the program to its end; None when it was stopped."""
    launch_file = spec.attempt_dir / "external" / LAUNCH_NAME
    launch = Launch.model_validate_json(launch_file.read_text(encoding="utf-8"))
    program = program_of(spec.external, spec.stage)
    rank = int(os.environ.get("RANK", "0"))
    require_program(program, spec.external, spec.stage, sys.executable)
    command = [sys.executable if word == "{python}" else word for word in launch.command]
    if launch.is_driven and launch.nodes > 1:
        head = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
        gpus = f"--num-gpus={launch.gpus_per_node}"
        if rank == 0:
            port = head.rpartition(":")[2]
            subprocess.run(["ray", "start", "--head", f"--port={port}", gpus], check=True)
        else:
            command = ["ray", "start", f"--address={head}", gpus, "--block"]
    marks = _Marks(spec, program) if rank == 0 else None
    with _started(command, launch, spec) as process:
        code = _watch(process, spec, stop, marks)
    if code is None:
        return None
    if code and not (launch.is_driven and rank > 0 and (spec.attempt_dir / _DRIVER_DONE).exists()):
        _leave(code)
    outcome = StageOutcome(
        stage=spec.stage,
        attempt=spec.attempt,
        steps=launch.steps,
        rows=launch.rows,
        rejects={},
        tokens=launch.tokens,
        last={},
    )
    if rank == 0:
        (spec.attempt_dir / _DRIVER_DONE).touch()
        publish_program_model(spec, launch, program, outcome)
    return outcome


class _Marks:
    """Marks the program's checkpoints as ours, so that the supervisor sees progress."""

    def __init__(self, spec: TrainSpec, program: Program) -> None:
        self._spec = spec
        self._program = program
        self._marked = 0
        self._next = 0.0

    def look(self, *, now: bool = False) -> None:
        if time.monotonic() < self._next and not now:
            return
        self._next = time.monotonic() + MARK_EVERY_S
        spec = self._spec
        step = self._program.newest_step(spec.stage_dir / "external")
        if step <= self._marked:
            return
        self._marked = step
        unfinished = checkpoints.unfinished_folder(spec.checkpoints, spec.attempt)
        folder = unfinished / f"checkpoint-{step}"
        folder.mkdir(parents=True, exist_ok=True)
        publish.write_json(folder / "program.json", {"program": self._program.name, "step": step})
        checkpoints.complete(
            folder,
            step=step,
            attempt=spec.attempt,
            world_size=int(os.environ.get("WORLD_SIZE", "1")),
            attempts=spec.attempt_dir.parent,
        )
        checkpoints.prune(spec.checkpoints, keep=spec.keep_checkpoints, attempt=spec.attempt)


@contextlib.contextmanager
def _started(
    command: list[str], launch: Launch, spec: TrainSpec
) -> Iterator[subprocess.Popen[bytes]]:
    """The program in a group of its own, ended with this process's work at the latest."""
    here = str(Path(__file__).resolve().parents[2])  # for the reward function
    path = os.pathsep.join(filter(None, (here, os.environ.get("PYTHONPATH"))))
    folder = Path(launch.working_folder).expanduser()
    folder.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        command, cwd=folder, env={**os.environ, "PYTHONPATH": path}, start_new_session=True
    )
    try:
        yield process
    finally:
        _end(process)


def _watch(
    process: subprocess.Popen[bytes], spec: TrainSpec, stop: StopRequest, marks: _Marks | None
) -> int | None:
    """The program's exit code, None when it was ended because a stop was asked for."""
    beat = of_this_rank()
    while process.poll() is None:
        beat.section(Section.STEP)  # alive; what the program itself does cannot be seen
        if stop.seen_here():
            print("stopping: the program does not save on request", file=sys.stderr)
            _end(process)
            if marks is not None:
                marks.look(now=True)
            return None
        if marks is not None:
            marks.look()
        time.sleep(POLL_S)
    if marks is not None:
        marks.look(now=True)
    return process.returncode


def _end(process: subprocess.Popen[bytes]) -> None:
    """TERM to the program and all it started, then KILL to what is left."""
    with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=TERM_GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _leave(code: int) -> None:
    """Exit as the program did; never with a code that means something else here."""
    print(f"the program ended with {code}", file=sys.stderr)
    code = code if code > 0 else 128 - code
    sys.exit(1 if code in (EXIT_RESUME, EXIT_NEVER_AGAIN) else code)


def publish_program_model(
    spec: TrainSpec, launch: Launch, program: Program, outcome: StageOutcome
) -> None:
    """The weights of the last step, with what the parent's folder says about the model."""
    checkpoints.require_current(spec.attempt_dir.parent, spec.attempt)
    work = spec.stage_dir / "external"
    exported = work / f"exported-{launch.steps}"
    command = program.export(work, launch.steps, exported)
    if command:
        shutil.rmtree(exported, ignore_errors=True)
        subprocess.run(command, cwd=Path(launch.working_folder).expanduser(), check=True)
    source = exported if command else program.weights(work, launch.steps)
    if not any(source.glob("*.safetensors")):
        raise UserError(f"{launch.program} left no *.safetensors in {source}")
    with publish.atomic_directory(spec.model_dir) as folder:
        for pattern in _ABOUT_A_MODEL:
            for path in spec.parent.glob(pattern):
                # The parent's own list of weight files would hide the new ones.
                if path.name not in ("manifest.json", "model.safetensors.index.json"):
                    shutil.copyfile(path, folder / path.name)
        for pattern in ("*.safetensors", *_ABOUT_A_MODEL):
            for path in source.glob(pattern):
                shutil.copyfile(path, folder / path.name)
        index_shards(folder)
        check_model_folder(folder)
    publish.write_text(spec.result_file, outcome.model_dump_json(indent=2) + "\n")


def index_shards(folder: Path) -> None:
    """Write the list of tensors by file that transformers wants of weights in several files."""
    index = folder / "model.safetensors.index.json"
    if index.exists() or (folder / "model.safetensors").exists():
        return
    places: dict[str, str] = {}
    size = 0
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as stream:
            # The format: a length in 8 bytes, a JSON header of that length, the tensors.
            header = json.loads(stream.read(int.from_bytes(stream.read(8), "little")))
        for name, tensor in header.items():
            if name != "__metadata__":
                places[name] = path.name
                size += tensor["data_offsets"][1] - tensor["data_offsets"][0]
    publish.write_json(index, {"metadata": {"total_size": size}, "weight_map": places})


if __name__ == "__main__":
    sys.exit(entry.main(train))

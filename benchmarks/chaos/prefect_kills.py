"""The Prefect flow of training is killed, or the Prefect server under it: `flows.train` itself.

A real data set of 64 questions and a random Llama of 100,000 weights on two nodes. The flow's
process gets SIGKILL at a random moment and the same command is started again; or the server does,
and the flow is started again on a new one should it not have ended well by itself. Either way the
run must be published, by as many jobs as it has attempts.

Not covered: killing a worker that runs the flow as a deployment.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml

from benchmarks.chaos.lab import Lab, LabError
from benchmarks.chaos.result import Result
from benchmarks.chaos.supervisor import REPOSITORY
from benchmarks.training.tiny_model import write_questions, write_tiny_model
from flows._api import temporary_api
from training.train import TrainConfig, plan
from training.trainers.settings import RlvrSettings, SftSettings
from workspace.manifest import Manifest, describe_file, now, write_manifest

ROWS, STEPS = 64, 40
FLOW, SERVER = "Prefect flow", "Prefect server"


def flow_kill(lab: Lab, short: bool) -> list[Result]:
    """C11: SIGKILL to `python -m flows.train`."""
    return _trials(lab, 2 if short else 10, FLOW)


def server_kill(lab: Lab, short: bool) -> list[Result]:
    """C11: SIGKILL to the Prefect server while the flow waits for its job."""
    return _trials(lab, 2 if short else 10, SERVER)


def _trials(lab: Lab, trials: int, victim: str) -> list[Result]:
    base = write_tiny_model(lab.folder / f"base-{victim[-4:]}")
    duplicates = lost = 0
    for trial in range(trials):
        config = _config(lab.folder / f"{victim[8:]}-{trial}", base)
        published = (_kill_flow if victim == FLOW else _kill_server)(config, trial)
        lost += not published
        duplicates += lab.duplicates_under(_stage(config))
    return [
        Result(f"duplicate submissions, {victim} killed {trials} times", duplicates, "", "= 0"),
        Result(f"lost runs, {victim} killed {trials} times", lost, "", "= 0"),
    ]


def _kill_flow(config: TrainConfig, trial: int) -> bool:
    with temporary_api():
        flow = _start(config)
        _await_job(config, flow)
        time.sleep(random.Random(trial).uniform(0, 15))
        flow.kill()
        flow.wait()
        return _start(config).wait(300) == 0


def _kill_server(config: TrainConfig, trial: int) -> bool:
    with temporary_api():
        flow = _start(config)
        _await_job(config, flow)
        time.sleep(random.Random(trial).uniform(0, 10))
        for pid in _server_pids():
            os.kill(pid, signal.SIGKILL)
        code = flow.wait(400)
    if code == 0:
        return True
    with temporary_api():
        return _start(config).wait(300) == 0


def _start(config: TrainConfig) -> subprocess.Popen[bytes]:
    file = config.workspace / "train.yaml"
    values = config.model_dump(mode="json", exclude_unset=True)
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    with (config.workspace / "flow.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.train", "--config", str(file)],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=log,
            stderr=log,
        )


def _config(workspace: Path, base: Path) -> TrainConfig:
    folder = workspace / "datasets" / "dsm"
    view = folder / "views" / "trl_sft"
    view.mkdir(parents=True)
    write_questions(view / "train.parquet", ROWS)
    manifest = Manifest(
        stage="dataset",
        key="d" * 16,
        fingerprint="f" * 16,
        settings={},
        inputs={},
        code_version="chaos",
        created=now(),
        files=[describe_file(folder, view / "train.parquet")],
    )
    write_manifest(folder, manifest)
    rows_per_step = 8
    return TrainConfig(
        workspace=workspace,
        base_model=str(base),
        precision="fp32",
        sft=SftSettings(
            epochs=STEPS * rows_per_step / ROWS,
            rows_per_step=rows_per_step,
            tokens_per_forward=160,
            token_budget=0,
        ),
        rlvr=RlvrSettings(steps=0),
        checkpoint_every_steps=10,
        launcher="slurm",
        nodes=2,
        time_limit_s=900,
    )


def _stage(config: TrainConfig) -> Path:
    return plan(config).folder.root / "sft"


def _await_job(config: TrainConfig, flow: subprocess.Popen[bytes]) -> None:
    handle = _stage(config) / "attempts" / "1" / "handle.json"
    deadline = time.monotonic() + 180
    while not handle.exists():
        if flow.poll() is not None or time.monotonic() > deadline:
            log = (config.workspace / "flow.log").read_text(errors="replace")
            raise LabError(f"the flow submitted no job: {log[-1500:]}")
        time.sleep(0.2)


def _server_pids() -> list[int]:
    home = f"PREFECT_HOME={os.environ['PREFECT_HOME']}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            environment = (entry / "environ").read_bytes().split(b"\0")
            # The job has the flow's environment.
            in_job = any(value.startswith(b"SLURM_JOB_ID=") for value in environment)
            flow = b"flows.train" in (entry / "cmdline").read_bytes()
            if home in environment and not (in_job or flow or int(entry.name) == os.getpid()):
                found.append(int(entry.name))
    return found

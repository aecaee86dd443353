"""The Prefect flow of training is killed, the Prefect server, or the worker: `flows.train` itself.

A real data set of 64 questions and a random Llama of 100,000 weights on two nodes. Whatever gets
SIGKILL at a random moment is started again as its operators would: the flow's command by hand, the
server on its port and database, the worker in its pool. Where the worker's flow process dies with
it (a login node that is gone), `reconcile` has the flow run started again. Every run must be
published, by as many jobs as it has attempts.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import yaml

from benchmarks.chaos.lab import Lab, LabError
from benchmarks.chaos.prefect_site import PrefectSite, as_parameters, open_site
from benchmarks.chaos.result import Result
from benchmarks.chaos.supervisor import REPOSITORY
from benchmarks.training.tiny_model import write_questions, write_tiny_model
from flows._api import temporary_api
from training.train import TrainConfig, plan
from training.trainers.settings import RlvrSettings, SftSettings
from workspace.manifest import Manifest, describe_file, now, write_manifest

ROWS, STEPS = 64, 40
PATIENCE_S = 300.0


def flow_kill(lab: Lab, short: bool) -> list[Result]:
    """C11: SIGKILL to `python -m flows.train`."""
    return _trials(lab, 2 if short else 10, "Prefect flow", _kill_flow)


def server_kill(lab: Lab, short: bool) -> list[Result]:
    """C11: SIGKILL to the Prefect server while a flow run of the worker waits for its job."""
    with open_site(lab.folder / "server-site") as site:
        return _trials(lab, 1 if short else 10, "Prefect server", partial(_kill_server, site))


def worker_kill(lab: Lab, short: bool) -> list[Result]:
    """C11: SIGKILL to the worker; in every second trial its flow's process dies with it."""
    with open_site(lab.folder / "worker-site") as site:
        return _trials(lab, 1 if short else 10, "Prefect worker", partial(_kill_worker, site))


Kill = Callable[[TrainConfig, int], bool]  # of a trial; whether its run was published


def _trials(lab: Lab, trials: int, victim: str, kill: Kill) -> list[Result]:
    word = victim.split()[-1]
    base = write_tiny_model(lab.folder / f"base-{word}")
    duplicates = lost = 0
    for trial in range(trials):
        config = _config(lab.folder / f"{word}-{trial}", base)
        began = time.monotonic()
        lost += not kill(config, trial)
        duplicates += lab.duplicates_under(_stage(config))
        print(f"  {victim}, trial {trial}: {time.monotonic() - began:.0f} s", flush=True)
    return [
        Result(f"duplicate submissions, {victim} killed {trials} times", duplicates, "", "= 0"),
        Result(f"lost runs, {victim} killed {trials} times", lost, "", "= 0"),
    ]


def _kill_flow(config: TrainConfig, trial: int) -> bool:
    with temporary_api():
        flow = _start(config)
        _await_job(config, lambda: flow.poll() is not None)
        time.sleep(random.Random(trial).uniform(0, 15))
        flow.kill()
        flow.wait()
        return _start(config).wait(300) == 0


def _kill_server(site: PrefectSite, config: TrainConfig, trial: int) -> bool:
    flow_run = _submit(site, config)
    time.sleep(random.Random(trial).uniform(0, 10))
    site.kill("server")
    time.sleep(1)
    site.start_server()
    return _is_completed(site, flow_run, config)


def _kill_worker(site: PrefectSite, config: TrainConfig, trial: int) -> bool:
    flow_run = _submit(site, config)
    time.sleep(random.Random(trial).uniform(0, 8))
    with_flow = trial % 2 == 0
    site.kill("worker")
    if with_flow:
        site.kill_flow(flow_run)
    site.start_worker()
    return _is_completed(site, flow_run, config, reconciled=with_flow)


def _submit(site: PrefectSite, config: TrainConfig) -> str:
    flow_run = site.submit(as_parameters(config))
    _await_job(config, lambda: site.state(flow_run) in ("FAILED", "CRASHED"))
    return flow_run


def _is_completed(
    site: PrefectSite, flow_run: str, config: TrainConfig, *, reconciled: bool = False
) -> bool:
    """Whether the flow run ends well and its model is there."""
    deadline = time.monotonic() + PATIENCE_S
    while (state := site.state(flow_run)) != "COMPLETED":
        ended = state in ("FAILED", "CANCELLED") or (state == "CRASHED" and not reconciled)
        if ended or time.monotonic() > deadline:
            print(f"  flow run {flow_run} is {state}: {site.log('worker')[-1500:]}", flush=True)
            return False
        if reconciled:
            site.reconcile(config.workspace)
        time.sleep(1)
    return plan(config).published is not None


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


def _await_job(config: TrainConfig, is_over: Callable[[], bool]) -> None:
    handle = _stage(config) / "attempts" / "1" / "handle.json"
    deadline = time.monotonic() + 180
    while not handle.exists():
        if is_over() or time.monotonic() > deadline:
            log = config.workspace / "flow.log"
            text = log.read_text(errors="replace") if log.exists() else ""
            raise LabError(f"the flow submitted no job: {text[-1500:]}")
        time.sleep(0.2)

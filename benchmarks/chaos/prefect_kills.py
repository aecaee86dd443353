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
from typing import NamedTuple

from benchmarks.chaos.lab import Lab, LabError
from benchmarks.chaos.prefect_site import PrefectSite, as_parameters, open_site
from benchmarks.chaos.real_trainer import config_of, stage_of, write_config
from benchmarks.chaos.result import Result
from benchmarks.chaos.supervisor import REPOSITORY
from benchmarks.training.tiny_model import write_tiny_model
from flows._api import temporary_api
from training.train import TrainConfig, plan

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


class Trial(NamedTuple):
    """Whether the kill came before the run's end, and whether the run was published."""

    struck: bool
    published: bool


Kill = Callable[[TrainConfig, int], Trial]


def _trials(lab: Lab, trials: int, victim: str, kill: Kill) -> list[Result]:
    word = victim.split()[-1]
    base = write_tiny_model(lab.folder / f"base-{word}")
    duplicates = lost = struck = 0
    for trial in range(trials):
        config = _config(lab.folder / f"{word}-{trial}", base)
        began = time.monotonic()
        done = kill(config, trial)
        lost += not done.published
        struck += done.struck
        duplicates += lab.duplicates_under(stage_of(config))
        print(f"  {victim}, trial {trial}: {time.monotonic() - began:.0f} s", flush=True)
    return [
        Result(f"{victim} killed during a run, of {trials}", struck, "", f"= {trials}"),
        Result("duplicate submissions", duplicates, "", "= 0"),
        Result("lost runs", lost, "", "= 0"),
    ]


def _kill_flow(config: TrainConfig, trial: int) -> Trial:
    with temporary_api():
        flow = _start(config)
        _await_job(config, lambda: flow.poll() is not None)
        time.sleep(random.Random(trial).uniform(0, 15))
        goes_on = flow.poll() is None
        flow.kill()
        flow.wait()
        return Trial(goes_on, _start(config).wait(300) == 0)


def _kill_server(site: PrefectSite, config: TrainConfig, trial: int) -> Trial:
    flow_run = _submit(site, config)
    time.sleep(random.Random(trial).uniform(0, 10))
    goes_on = plan(config).published is None
    site.kill("server")
    time.sleep(1)
    site.start_server()
    return Trial(goes_on, _is_completed(site, flow_run, config))


def _kill_worker(site: PrefectSite, config: TrainConfig, trial: int) -> Trial:
    flow_run = _submit(site, config)
    time.sleep(random.Random(trial).uniform(0, 8))
    with_flow = trial % 2 == 0
    goes_on = plan(config).published is None
    site.kill("worker")
    if with_flow:
        site.kill_flow(flow_run)
    site.start_worker()
    return Trial(goes_on, _is_completed(site, flow_run, config, reconciled=with_flow))


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
    file = write_config(config)
    with (config.workspace / "flow.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flows.train", "--config", str(file)],
            cwd=REPOSITORY,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdout=log,
            stderr=log,
        )


def _config(workspace: Path, base: Path) -> TrainConfig:
    rows_per_step = 8
    return config_of(
        workspace,
        base,
        questions=ROWS,
        epochs=STEPS * rows_per_step / ROWS,
        rows_per_step=rows_per_step,
    )


def _await_job(config: TrainConfig, is_over: Callable[[], bool]) -> None:
    handle = stage_of(config) / "attempts" / "1" / "handle.json"
    deadline = time.monotonic() + 180
    while not handle.exists():
        if is_over() or time.monotonic() > deadline:
            log = config.workspace / "flow.log"
            text = log.read_text(errors="replace") if log.exists() else ""
            raise LabError(f"the flow submitted no job: {text[-1500:]}")
        time.sleep(0.2)

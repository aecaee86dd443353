"""A Prefect server and a process worker that can be killed and started again, as on a login node.

The server keeps its database and its port, as one under systemd does. Poll intervals are a second
where Prefect's defaults are ten: what is in question is whether runs are lost, not how soon an
idle worker looks again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx

from benchmarks.chaos.lab import LabError
from benchmarks.chaos.supervisor import REPOSITORY
from flows._api import answers
from flows._leash import start_module
from flows.serve import Served, free_port

POOL = "dsm-chaos"
PATIENCE_S = 120.0
_PORTS = range(4300, 4400)  # beside those of `python -m flows.serve`
# As `python -m flows.reconcile`, but what counts as long is short: a flow run that says that it
# runs while nobody holds the run's lock is given 15 minutes else.
_RECONCILE = """
import sys
from training.cluster import flow_state
flow_state.GRACE_S = 3.0
from flows._cli import main
from flows.reconcile import DOOR
sys.exit(main(DOOR, ["--workspace", sys.argv[1]]))
"""


class PrefectSite:
    """Server, worker, and the deployment of `train`."""

    def __init__(self, home: Path) -> None:
        home.mkdir(parents=True)
        self._served = Served(home, free_port(_PORTS))
        self._served.environment |= {
            "PYTHONPATH": str(REPOSITORY),
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "PREFECT_WORKER_HEARTBEAT_SECONDS": "5",
            "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5",
            "PREFECT_UI_ENABLED": "false",
        }
        self._api = httpx.Client(base_url=self._served.api_url, timeout=60)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def open(self) -> None:
        self.start_server()
        self._served.register(POOL)
        self.start_worker()

    def close(self) -> None:
        for name in ("worker", "server"):
            self.kill(name)
        for pid in self._flow_processes(""):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def start_server(self) -> None:
        port = str(self._served.port)
        self._start("server", "server", "start", "--host", "127.0.0.1", "--port", port)
        self._until(lambda: answers(self._served.api_url, timeout_s=2.0), "the server answers")

    def start_worker(self) -> None:
        self._start("worker", "worker", "start", "--pool", POOL, "--type", "process")

    def kill(self, name: str) -> None:
        """SIGKILL to `worker` (its flow runs' processes live on) or to `server` as a whole."""
        process = self._processes[name]
        with contextlib.suppress(ProcessLookupError):
            if name == "server":
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()

    def kill_flow(self, flow_run: str) -> None:
        """SIGKILL to the process of a flow run."""
        found = self._flow_processes(flow_run)
        if not found:
            raise LabError(f"flow run {flow_run} has no process")
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def submit(self, config: dict[str, Any]) -> str:
        """Have the worker run `train`; the flow run's id."""
        deployment = self._ask("GET", "/deployments/name/train/train")["id"]
        asked = {
            "parameters": {"config": config},
            "state": {"type": "SCHEDULED"},
            "idempotency_key": str(uuid4()),
        }
        made = self._ask("POST", f"/deployments/{deployment}/create_flow_run", json=asked)
        return str(made["id"])

    def state(self, flow_run: str) -> str:
        """Such as RUNNING."""
        return str(self._ask("GET", f"/flow_runs/{flow_run}")["state_type"])

    def reconcile(self, workspace: Path) -> None:
        """A round of the reconcile flow."""
        subprocess.run(
            [sys.executable, "-c", _RECONCILE, str(workspace)],
            env=self._served.environment, cwd=REPOSITORY, check=True, capture_output=True,
        )  # fmt: skip

    def log(self, name: str) -> str:
        return self._served.log_path(name).read_text(errors="replace")

    def _ask(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """Patiently: a busy server with SQLite says 503 for seconds, as Prefect's client knows."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._api.request(method, path, **options)
            if answer.status_code != 503 or time.monotonic() > deadline:
                break
            time.sleep(1)
        answer.raise_for_status()
        values: dict[str, Any] = answer.json()
        return values

    def _start(self, name: str, *arguments: str) -> None:
        with self._served.log_path(name).open("ab") as log:
            command = ["prefect", *arguments]
            self._processes[name] = start_module(command, self._served.environment, log)

    def _flow_processes(self, flow_run: str) -> list[int]:
        """Of one flow run, or of all of this site."""
        wanted = f"PREFECT__FLOW_RUN_ID={flow_run}".encode()
        home = f"PREFECT_HOME={self._served.home}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                environment = (entry / "environ").read_bytes().split(b"\0")
                ours = any(value.startswith(wanted) for value in environment)
                # A job has the environment of the flow that submitted it.
                in_job = any(value.startswith(b"SLURM_JOB_ID=") for value in environment)
                if ours and home in environment and not in_job:
                    found.append(int(entry.name))
        return found

    def _until(self, condition: Any, what: str, within_s: float = 120.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            if time.monotonic() > deadline:
                raise LabError(f"{what}: not after {within_s:.0f} s\n{self.log('server')[-1500:]}")
            time.sleep(0.1)


@contextmanager
def open_site(home: Path) -> Iterator[PrefectSite]:
    """Everything runs inside the block, and nothing of it after."""
    site = PrefectSite(home)
    try:
        site.open()
        yield site
    finally:
        site.close()


def as_parameters(config: Any) -> dict[str, Any]:
    """A flow's configuration as its run's parameters."""
    values: dict[str, Any] = json.loads(config.model_dump_json(exclude_unset=True))
    return values

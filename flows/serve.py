"""`python -m flows.serve`: a Prefect server, our deployments and a worker, until Ctrl-C.

Starts the server (SQLite), creates the work pool, registers every deployment of `prefect.yaml`,
starts one worker, prints the address of the UI. Its state is in `PREFECT_HOME`, by default
`~/.local/state/dsm-pipeline/prefect`, so a user's own `~/.prefect` stays as it is, and what was set
in the page is there after a restart (`flows/_deployments.py`). While it runs, every
`python -m flows.<name>` of the same user reports to it.

For one machine. Several machines want PostgreSQL and a worker on each (docs of Prefect).
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from flows._api import (
    ENVIRONMENT,
    START_TIMEOUT_S,
    answers,
    served_address_file,
    served_api_url,
    state_folder,
)
from flows._cli import EXIT_DONE, EXIT_FAILED, EXIT_USAGE
from flows._leash import start_module
from workspace import publish
from workspace.config import StageConfig, setting
from workspace.environment import CHECKOUT
from workspace.errors import DsmError, UserError
from workspace.flags import FlagParser, UsageError

STOP_TIMEOUT_S: Final = 20.0
PORTS: Final = range(4200, 4300)


class ServeConfig(StageConfig):
    """Where the server listens and how much the worker does at once."""

    port: int | None = setting(
        None, position=1, description="port of the UI; the first free one from 4200", ge=1, le=65535
    )
    limit: int = setting(
        2, position=2, description="flow runs at once on this machine", ge=1, le=64
    )
    pool: str = setting("dsm", position=3, description="work pool, as named in prefect.yaml")


class Served:
    """The processes of one `serve`, and where their logs are."""

    def __init__(self, home: Path, port: int) -> None:
        self.api_url = f"http://127.0.0.1:{port}/api"
        self.ui_url = f"http://127.0.0.1:{port}"
        self.home = home
        self.port = port
        self.environment = {
            **os.environ,
            **{name: os.environ.get(name, value) for name, value in ENVIRONMENT.items()},
            "PREFECT_HOME": str(home),
            "PREFECT_API_URL": self.api_url,
        }
        self._children: list[tuple[str, subprocess.Popen[bytes]]] = []

    def start(self, name: str, arguments: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start `python -m prefect <arguments>` in the background, logging to `<name>.log`."""
        with self.log_path(name).open("wb") as log:
            child = start_module(["prefect", *arguments], self.environment, log)
        self._children.append((name, child))
        return child

    def register(self, pool: str) -> str:
        """Register the deployments (`flows.deploy`); returns what it says, raises if it fails."""
        done = subprocess.run(
            [sys.executable, "-m", "flows.deploy", "--pool", pool],
            cwd=CHECKOUT,
            env=self.environment,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise DsmError(f"the deployments were not registered:\n{done.stdout}{done.stderr}")
        return done.stdout

    def wait_until(self, ready: Callable[[], bool], name: str) -> None:
        """Wait for `ready`; raises with the end of the log when the process dies before."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready():
            self.check()
            if time.monotonic() > deadline:
                raise DsmError(f"the {name} is not ready after {START_TIMEOUT_S:.0f} s")
            time.sleep(0.2)

    def check(self) -> None:
        """Raise when a process has ended by itself."""
        for name, child in self._children:
            if child.poll() is not None:
                text = self.log_path(name).read_text(encoding="utf-8", errors="replace")
                tail = "\n".join(text.splitlines()[-15:])
                raise DsmError(f"the {name} ended with code {child.returncode}:\n{tail}")

    def log_path(self, name: str) -> Path:
        """The log file of a process."""
        return self.home / f"{name}.log"

    def stop(self) -> None:
        """End the processes, the last one started first."""
        for _, child in reversed(self._children):
            if child.poll() is None:
                child.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(STOP_TIMEOUT_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


@contextlib.contextmanager
def serve(config: ServeConfig, home: Path) -> Iterator[Served]:
    """Everything running and registered; stopped when the block ends."""
    home.mkdir(parents=True, exist_ok=True)
    served = Served(home, config.port or free_port(PORTS))
    try:
        served.start(
            "server", ["server", "start", "--host", "127.0.0.1", "--port", str(served.port)]
        )
        served.wait_until(lambda: answers(served.api_url, timeout_s=2.0), "server")
        print(served.register(config.pool), end="", flush=True)
        served.start(
            "worker",
            ["worker", "start", "--pool", config.pool, "--type", "process",
             "--limit", str(config.limit)],
        )  # fmt: skip
        yield served
    finally:
        served.stop()


def free_port(ports: range) -> int:
    """The first free port of `ports` on the loopback interface."""
    for port in ports:
        if port_is_free(port):
            return port
    raise UserError(f"no free port from {ports.start} to {ports.stop - 1}: choose one with --port")


def port_is_free(port: int) -> bool:
    """Whether nothing listens on `port` of the loopback interface."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until Ctrl-C or SIGTERM; returns the exit code."""
    about = (__doc__ or "").split("\n\n")[0].split(": ", 1)[1]
    parser = FlagParser(
        "python -m flows.serve", ServeConfig, about, "Ctrl-C stops everything.", can_preview=False
    )
    try:
        config = parser.parse(sys.argv[1:] if arguments is None else arguments).config
        if running := served_api_url():
            raise UserError(f"already serving at {running.removesuffix('/api')}: stop that first")
        if config.port is not None and not port_is_free(config.port):
            raise UserError(f"port {config.port} is taken: choose another with --port")
        signal.signal(signal.SIGTERM, _interrupt)
        home = Path(os.environ.get("PREFECT_HOME") or state_folder() / "prefect")
        print("starting the Prefect server (about 15 s) …", flush=True)
        with serve(config, home) as served, _announced(served):
            while True:
                served.check()
                time.sleep(1.0)
    except KeyboardInterrupt:
        print("\nstopped")
        return EXIT_DONE
    except DsmError as error:
        print(f"serve: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


@contextlib.contextmanager
def _announced(served: Served) -> Iterator[None]:
    """Let the command lines of this user find the server, and tell the user where it is."""
    address_file = served_address_file()
    publish.write_text(address_file, served.api_url + "\n")
    print(
        f"UI        {served.ui_url}/deployments\n"
        f"logs      {served.home}/server.log, worker.log\n"
        f"prefect   export PREFECT_API_URL={served.api_url}\n"
        "Ctrl-C stops everything.",
        flush=True,
    )
    try:
        yield
    finally:
        address_file.unlink(missing_ok=True)


if __name__ == "__main__":
    sys.exit(main())

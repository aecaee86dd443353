"""Which Prefect API a `python -m flows.<name>` talks to, settled before Prefect is imported.

In this order: the user's own (`PREFECT_API_URL` or an active Prefect profile), the server of
`python -m flows.serve` while that runs, else a temporary one that lives as long as this process.

The temporary server keeps its database in a folder of its own: no run can lock another one's
SQLite file, and a user's `~/.prefect` stays as it is. It ends with its parent, however that ends
(`flows/_leash.py`); Prefect's own ephemeral server would outlive a killed run. What a run did is
in the workspace, not in there.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import secrets
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.parse
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Final

from flows._leash import end_with_parent
from workspace import publish
from workspace.errors import DsmError, UserError

PACKAGES: Final = (
    "corpus", "knowledge_graph", "training", "evaluation", "monitoring", "workspace",
    "tasks", "flows",
)  # fmt: skip

ENVIRONMENT: Final[dict[str, str]] = {
    # Plain libraries log through `logging`; this ships their lines to the run's page in the UI.
    "PREFECT_LOGGING_EXTRA_LOGGERS": ",".join(PACKAGES),
    "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",
    # Two busy cores need more than the 20 s that Prefect allows.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_API_REQUEST_TIMEOUT": "120",
    "PREFECT_RESULTS_PERSIST_BY_DEFAULT": "false",
}

START_TIMEOUT_S: Final = 120.0
_DATABASE: Final = "prefect.db"


class ApiUnreachableError(UserError):
    """The Prefect API that the user named does not answer."""


def apply_environment() -> None:
    """Settings for Prefect in this process and its children; a user's own value wins."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


@contextlib.contextmanager
def prefect_api(*, public: bool = False) -> Iterator[str]:
    """The address of a live API, set as `PREFECT_API_URL`. Call before importing Prefect.

    A `public` one can be reached from other machines; a temporary one then wants a password.
    """
    apply_environment()
    # A terminal shows our own lines and errors; Prefect's would say the same a second time.
    os.environ.setdefault("PREFECT_LOGGING_LEVEL", "CRITICAL")
    chosen = configured_api_url()
    if chosen is not None:
        if not answers(chosen, timeout_s=10.0):
            raise ApiUnreachableError(
                f"the Prefect API at {chosen} does not answer: start it, or unset PREFECT_API_URL "
                "(and the active Prefect profile's) to run with a temporary one"
            )
        yield chosen
        return
    served = served_api_url()
    if served is not None:
        with _environment(PREFECT_API_URL=served):
            yield served
        return
    with temporary_api(public=public) as address:
        yield address


def configured_api_url() -> str | None:
    """The API that the user chose by environment or by Prefect profile, if any."""
    if url := os.environ.get("PREFECT_API_URL"):
        return url
    home = Path(os.environ.get("PREFECT_HOME", Path.home() / ".prefect"))
    try:
        profiles = tomllib.loads((home / "profiles.toml").read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        return None
    active = os.environ.get("PREFECT_PROFILE", profiles.get("active", ""))
    url = profiles.get("profiles", {}).get(active, {}).get("PREFECT_API_URL")
    return str(url) if url else None


def state_folder() -> Path:
    """Where this project keeps what belongs to a user and to no workspace."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "dsm-pipeline"


def served_address_file() -> Path:
    """Holds the API's address while `python -m flows.serve` runs."""
    return state_folder() / "serve.url"


def served_api_url() -> str | None:
    """The API of a running `python -m flows.serve` of this user, if there is one."""
    try:
        url = served_address_file().read_text(encoding="utf-8").strip()
    except OSError:
        return None
    return url if url and answers(url, timeout_s=2.0) else None


def answers(api_url: str, *, timeout_s: float) -> bool:
    """Whether a Prefect API says that it is healthy."""
    parts = urllib.parse.urlsplit(api_url)
    if parts.hostname is None:
        raise ApiUnreachableError(f"PREFECT_API_URL {api_url!r} is not a web address")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=timeout_s)
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/health")
        # A hosted API wants a key even for this; that it speaks HTTP is enough.
        return connection.getresponse().status in (200, 401, 403, 404)
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def temporary_api(*, timeout_s: float = START_TIMEOUT_S, public: bool = False) -> Iterator[str]:
    """Start a Prefect API of our own on a free port, with an empty database; gone at the end."""
    host = own_address() if public else "127.0.0.1"
    secret = {}
    if public:
        login = f"dsm:{secrets.token_urlsafe(24)}"
        secret = {"PREFECT_SERVER_API_AUTH_STRING": login, "PREFECT_API_AUTH_STRING": login}
    home = Path(tempfile.mkdtemp(prefix="dsm-prefect-"))
    template = _template()
    if template.exists():
        shutil.copyfile(template, home / _DATABASE)
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((host, 0))
        listener.listen(128)
        address = f"http://{host}:{listener.getsockname()[1]}/api"
        server = _start_server(home, listener, secret)
    try:
        # Importing takes seconds; the server starts meanwhile. Settings are read at import, so
        # the address must be set first.
        with _environment(
            PREFECT_API_URL=address,
            PREFECT_HOME=str(home),
            PREFECT_LOGGING_TO_API_ENABLED="false",
            **secret,
        ):
            import prefect  # noqa: F401

            _wait_until_ready(server, address, home, timeout_s)
            if not template.exists():
                _save_template(home / _DATABASE, template)
            yield address
    finally:
        server.kill()
        server.wait()
        shutil.rmtree(home, ignore_errors=True)


def own_address() -> str:
    """The address under which other machines of the network reach this one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Nothing is sent: the kernel only chooses the interface.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def _start_server(
    home: Path, listener: socket.socket, secret: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    environment = {
        **os.environ,
        **secret,
        "PREFECT_HOME": str(home),
        "PREFECT_API_DATABASE_CONNECTION_URL": f"sqlite+aiosqlite:///{home / _DATABASE}",
        "PREFECT_UI_ENABLED": "false",
        "PREFECT__SERVER_EPHEMERAL": "1",
        "PREFECT__SERVER_FINAL": "1",
    }
    environment.pop("PREFECT_API_URL", None)
    with (home / "server.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "flows._api", str(listener.fileno()), str(home)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            env=environment,
            pass_fds=[listener.fileno()],
            # Ctrl-C in the terminal is for the flow, which then still reports its end.
            start_new_session=True,
        )


def _wait_until_ready(
    server: subprocess.Popen[bytes], address: str, home: Path, timeout_s: float
) -> None:
    deadline = time.monotonic() + timeout_s
    while server.poll() is None and time.monotonic() < deadline:
        if answers(address, timeout_s=2.0):
            return
        time.sleep(0.1)
    ended = server.poll()
    what = f"did not answer in {timeout_s:.0f} s" if ended is None else f"ended with code {ended}"
    lines = (home / "server.log").read_text(encoding="utf-8", errors="replace").splitlines()
    raise DsmError(f"the temporary Prefect server {what}:\n" + "\n".join(lines[-20:]))


def _template() -> Path:
    """An empty, migrated database: creating one costs about 5 CPU seconds, copying it none."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "dsm-pipeline" / f"prefect-{version('prefect')}.db"


def _save_template(database: Path, template: Path) -> None:
    try:
        with (
            publish.atomic_path(template) as path,
            contextlib.closing(sqlite3.connect(database)) as source,
            contextlib.closing(sqlite3.connect(path)) as target,
        ):
            source.backup(target)
    except OSError:
        # A read-only home only costs the next run those seconds.
        return


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _serve_until_orphaned(descriptor: int, home: Path) -> None:
    """The server process: serve on the inherited socket until standard input ends."""

    def clean_up() -> None:
        # The server's other threads may write into it meanwhile.
        for _ in range(100):
            shutil.rmtree(home, ignore_errors=True)
            if not home.exists():
                return

    end_with_parent(clean_up)
    import uvicorn

    config = uvicorn.Config(
        "prefect.server.api.server:create_app", factory=True, log_level="error", lifespan="on"
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


if __name__ == "__main__":
    _serve_until_orphaned(int(sys.argv[1]), Path(sys.argv[2]))

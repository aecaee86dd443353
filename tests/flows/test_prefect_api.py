"""Which Prefect API a command line talks to, and that a temporary one never outlives its run."""

from __future__ import annotations

import http.server
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows import _api
from flows._api import configured_api_url, prefect_api, served_address_file


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has configured nothing."""
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path


@pytest.fixture
def healthy() -> Iterator[str]:
    """The address of something that answers as a Prefect API does."""

    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/api/health" else 500)
            self.end_headers()

        def log_message(self, *arguments: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/api"
    server.shutdown()
    server.server_close()


def test_nothing_is_configured_by_default(empty_home: Path) -> None:
    assert configured_api_url() is None


def test_the_active_profile_counts(empty_home: Path) -> None:
    (empty_home / "profiles.toml").write_text(
        'active = "work"\n[profiles.work]\nPREFECT_API_URL = "http://a/api"\n[profiles.idle]\n'
    )
    assert configured_api_url() == "http://a/api"
    os.environ["PREFECT_PROFILE"] = "idle"
    try:
        assert configured_api_url() is None
    finally:
        del os.environ["PREFECT_PROFILE"]


def test_the_users_own_api_is_taken(
    empty_home: Path, healthy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", healthy)
    with prefect_api() as address:
        assert address == healthy


def test_a_running_serve_is_found(empty_home: Path, healthy: str) -> None:
    served_address_file().parent.mkdir(parents=True)
    served_address_file().write_text(healthy + "\n")
    with prefect_api() as address:
        assert address == healthy
        assert os.environ["PREFECT_API_URL"] == healthy
    assert "PREFECT_API_URL" not in os.environ


def test_a_serve_that_died_is_not_taken(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served_address_file().parent.mkdir(parents=True)
    served_address_file().write_text("http://127.0.0.1:9/api\n")
    assert _api.served_api_url() is None


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_the_temporary_server_ends_with_its_parent(tmp_path: Path, end: signal.Signals) -> None:
    code = (
        "from flows._api import temporary_api\n"
        "import time\n"
        "with temporary_api():\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(600)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert parent.stdout is not None
    assert parent.stdout.readline() == "ready\n"
    (home,) = tmp_path.glob("dsm-prefect-*")
    assert _processes_with(str(home))
    parent.send_signal(end)
    parent.wait()
    deadline = time.monotonic() + 60
    while _processes_with(str(home)) or home.exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _processes_with(argument: str) -> list[Path]:
    """Processes that have `argument` on their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if argument.encode() in path.read_bytes().split(b"\0"):
                found.append(path)
        except OSError:  # it ended meanwhile
            continue
    return found

"""What the tests of the served UI share."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient

PATIENCE_MS = 180_000


def user_environment(home: Path) -> dict[str, str]:
    """Of a user whose state is in `home`."""
    # A user's shell has none of the settings that the other tests' API put into this process.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    return {
        **kept,
        "PREFECT_HOME": str(home / "prefect"),
        "XDG_STATE_HOME": str(home / "state"),
        # The worker looks for new runs each second, not each ten.
        "PREFECT_WORKER_QUERY_SECONDS": "1",
    }


@contextmanager
def serving(home: Path) -> Iterator[tuple[str, str]]:
    """The address of the UI of a running `python -m flows.serve`, and what it said before that."""
    server = subprocess.Popen(
        [sys.executable, "-m", "flows.serve"],
        stdout=subprocess.PIPE,
        text=True,
        env=user_environment(home),
    )
    assert server.stdout is not None
    said = ""
    while not (found := re.search(r"UI +(http://\S+?)/deployments", said)):
        line = server.stdout.readline()
        assert line, f"it ended: {said}"
        said += line
    try:
        yield found[1], said
    finally:
        server.send_signal(signal.SIGINT)
        assert server.wait(timeout=120) == 0
    assert not (home / "state" / "dsm-pipeline" / "serve.url").exists()


@contextmanager
def client_of(ui: str) -> Iterator[SyncPrefectClient]:
    """Of the API behind a served UI."""
    from prefect.client.orchestration import get_client
    from prefect.settings import PREFECT_API_URL, temporary_settings

    with (
        temporary_settings({PREFECT_API_URL: f"{ui}/api"}),
        get_client(sync_client=True) as opened,
    ):
        yield opened

"""One writer per stage; a killed writer leaves no stale lock."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from workspace.errors import WorkspaceBusyError
from workspace.locking import file_lock, stage_lock
from workspace.paths import Workspace

HOLDER = """
import sys, time
from pathlib import Path
from workspace.locking import file_lock, stage_lock
from workspace.paths import Workspace
with stage_lock(Workspace(Path(sys.argv[1])), "corpus"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_the_second_writer_is_told_who_holds_the_lock(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with (
            pytest.raises(WorkspaceBusyError, match=f"process {holder.pid} "),
            stage_lock(workspace, "corpus"),
        ):
            pytest.fail("two writers")
        with stage_lock(workspace, "graph"):
            pass
        os.kill(holder.pid, signal.SIGKILL)
        holder.wait()
    with stage_lock(workspace, "corpus"):
        pass


def test_sharers_keep_an_owner_out_and_no_other_sharer(tmp_path: Path) -> None:
    path = tmp_path / "shared.lock"
    with (
        file_lock(path, "it", shared=True),
        file_lock(path, "it", shared=True),
        pytest.raises(WorkspaceBusyError, match="it is being written by"),
        file_lock(path, "it"),
    ):
        pass
    with file_lock(path, "it"):
        pass

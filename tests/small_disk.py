"""A small file system for tests of full and read-only disks, where root may mount one."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mounted(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of that size at `folder`; the test is skipped where there can be none."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, check=False).returncode:
        pytest.skip("file systems cannot be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room that is left, once more as well; returns the file that does."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as stream:
        size = 1 << 20
        while size:
            try:
                stream.write(bytes(size))
            except OSError:
                size //= 2
    return filler


def remount(folder: Path, mode: str) -> None:
    """`ro` or `rw`. It is refused while a file is open for writing: it is tried until none is."""
    deadline = time.monotonic() + 60
    command = ["mount", "-o", f"remount,{mode}", str(folder)]
    while subprocess.run(command, check=False, capture_output=True).returncode:
        assert time.monotonic() < deadline, f"{folder} stays busy"

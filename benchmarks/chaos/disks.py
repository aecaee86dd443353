"""A file system of two megabytes, to be filled up or turned read-only."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """`folder` is a file system of its own inside the block."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leave no byte free."""
    status = os.statvfs(folder)
    (folder / "filler").write_bytes(b"x" * (status.f_bavail * status.f_frsize))

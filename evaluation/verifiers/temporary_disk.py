"""Room for the files of a tool run: a failure without room says nothing of what was run."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_SPARE_BYTES: Final = 16 << 20


def is_full(folder: Path) -> bool:
    """Whether a failure in `folder` may have come from a lack of room."""
    return shutil.disk_usage(folder).free < _SPARE_BYTES


def full_error() -> OSError:
    """For where there is no answer to give a verdict."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), tempfile.gettempdir())

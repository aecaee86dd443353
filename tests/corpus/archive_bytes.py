"""Archives in memory, the note that stands in them, and rows by their place."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

from ingest_runs import rows

NOTE = "# Note\n\nThe reset of the watchdog is synchronous and active high.\n"


def zipped(members: dict[str, bytes | str]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def tarred(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def places(workspace: Path, table: str) -> dict[str, dict[str, Any]]:
    """Rows by their uri without the folder."""
    prefix = f"{workspace.parent}/"
    return {row["uri"].removeprefix(prefix): row for row in rows(workspace, table)}

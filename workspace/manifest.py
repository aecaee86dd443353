"""The manifest: what a published folder holds, what it was made from, what was left out and why.

Written last. If it is there the work is done; if it is not, it never happened. Readers open only
the files that it lists, so a writer may place new shards beside old ones before the switch.
"""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from workspace import publish
from workspace.config import hash_json
from workspace.errors import CorruptWorkspaceError, MissingInputError
from workspace.ids import hash_file

MANIFEST_NAME = "manifest.json"


class FileEntry(BaseModel):
    """One published file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    path: str = Field(description="relative to the manifest's folder")
    rows: int | None = Field(default=None, description="rows of a Parquet file")
    bytes: int
    sha256: str


class Manifest(BaseModel):
    """Contents and origin of one published folder."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    stage: str = Field(description="corpus | graph | dataset | run | evaluation")
    key: str = Field(description="hash of stage, version, fingerprint and inputs")
    fingerprint: str = Field(description="hash of the settings that change the output")
    settings: dict[str, Any] = Field(description="those settings in full")
    inputs: dict[str, str] = Field(description="name of each input -> its content hash or key")
    code_version: str
    counts_in: dict[str, int] = Field(default_factory=dict)
    counts_out: dict[str, int] = Field(default_factory=dict)
    rejects: dict[str, int] = Field(
        default_factory=dict, description="reason code -> how many inputs or rows were left out"
    )
    notes: dict[str, Any] = Field(default_factory=dict, description="stage-specific figures")
    seconds: float = Field(default=0.0, description="wall time of the runs that made it")
    cost: float = Field(default=0.0, description="money spent on endpoints, in account currency")
    created: str = Field(description="UTC, ISO 8601")
    files: list[FileEntry] = Field(default_factory=list)

    @property
    def quarantined(self) -> int:
        """Inputs that could not be processed (a flow that has any exits with 3)."""
        return self.counts_out.get("quarantined", 0)


def stage_key(stage: str, version: str, fingerprint: str, inputs: Mapping[str, str]) -> str:
    """What identifies a piece of work: same key, same output."""
    return hash_json([stage, version, fingerprint, dict(inputs)])


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of `folder`, or None when nothing is published there."""
    path = folder / MANIFEST_NAME
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        raise CorruptWorkspaceError(f"{path} is not a manifest of this version: {error}") from error


def require_manifest(folder: Path, *, made_by: str) -> Manifest:
    """The manifest of `folder`; `MissingInputError` naming the flow that makes it otherwise."""
    manifest = read_manifest(folder)
    if manifest is None:
        raise MissingInputError(f"{folder} is not published yet: run `python -m flows.{made_by}`")
    return manifest


def find_published(folder: Path, key: str) -> Manifest | None:
    """The manifest if `folder` holds exactly the work `key`, complete; None otherwise.

    A missing or short file makes it unpublished, so the stage repairs it by running again.
    """
    manifest = read_manifest(folder)
    if manifest is None or manifest.key != key:
        return None
    for entry in manifest.files:
        path = folder / entry.path
        if not path.is_file() or path.stat().st_size != entry.bytes:
            return None
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Publish: the switch from the old contents to the new ones."""
    publish.write_text(folder / MANIFEST_NAME, manifest.model_dump_json(indent=2) + "\n")


def replace_file(folder: Path, name: str, text: str) -> None:
    """Give a file of a published folder another text (UTF-8).

    The folder is published at every moment: the manifest lists the file no more, then as it is now.
    A crash in between leaves it unlisted, until it is replaced again. Hold the folder's lock.
    """
    manifest = read_manifest(folder)
    assert manifest is not None, f"{folder} is not published"
    path = folder / name
    listed = {entry.path: entry for entry in manifest.files}
    if name in listed and path.is_file() and path.read_bytes() == text.encode("utf-8"):
        return
    listed.pop(name, None)
    write_manifest(folder, manifest.model_copy(update={"files": list(listed.values())}))
    publish.write_text(path, text)
    listed[name] = describe_file(folder, path)
    files = sorted(listed.values(), key=lambda entry: entry.path)
    write_manifest(folder, manifest.model_copy(update={"files": files}))


def describe_file(folder: Path, path: Path, rows: int | None = None) -> FileEntry:
    """The entry for `path` inside `folder`."""
    return FileEntry(
        path=path.relative_to(folder).as_posix(),
        rows=rows,
        bytes=path.stat().st_size,
        sha256=hash_file(path),
    )


def now() -> str:
    """UTC time for `Manifest.created`."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@functools.cache
def code_version() -> str:
    """Commit of this checkout (`-dirty` when changed), or the package version outside git."""
    here = Path(__file__).resolve().parent
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        from importlib.metadata import version

        return version("dsm-pipeline")
    return described.stdout.strip()

"""Atomic files: temporary name in the same folder, fsync, rename, fsync of the folder.

A reader sees the old file or the new one, never a part; a crash leaves at most a `.tmp-` file,
which `sweep_temporary` removes when the next writer holds the lock.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TEMPORARY_PREFIX = ".tmp-"


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let an `OSError` of the block name `path`, as one of a full disk does not by itself."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = str(path)
        raise


@contextmanager
def atomic_path(target: Path) -> Iterator[Path]:
    """Yield a temporary path to write a file to; it becomes `target` when the block ends well."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(6)}-{target.name}"
    try:
        with naming(target):
            yield temporary
            fsync(temporary)
            temporary.replace(target)
            fsync(target.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def atomic_directory(target: Path) -> Iterator[Path]:
    """Yield a temporary folder; it becomes `target` when the block ends well.

    An existing `target` is moved aside first and removed after: a crash in between leaves no
    `target`, which every reader takes as "not published".
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(6)}-{target.name}"
    temporary.mkdir()
    try:
        yield temporary
        for path in sorted(temporary.rglob("*")):
            fsync(path)
        fsync(temporary)
        if target.exists():
            retired = target.parent / f"{TEMPORARY_PREFIX}{secrets.token_hex(6)}-old"
            target.replace(retired)
            temporary.replace(target)
            shutil.rmtree(retired, ignore_errors=True)
        else:
            temporary.replace(target)
        fsync(target.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_bytes(target: Path, data: bytes) -> None:
    """Publish `data` at `target`."""
    with atomic_path(target) as path:
        path.write_bytes(data)


def write_text(target: Path, text: str) -> None:
    """Publish `text` (UTF-8) at `target`."""
    write_bytes(target, text.encode("utf-8"))


def write_json(target: Path, value: Any) -> None:
    """Publish `value` as indented JSON with sorted keys at `target`."""
    write_text(target, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def append(target: Path, data: bytes, *, durable: bool = False) -> None:
    """Add `data` (whole lines) to a file, or nothing: one writer.

    What a full disk took of it is cut off again, or the next line would join it. A kill may still
    leave a part at the end. `durable`: it is on the disk when this returns.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    before = target.stat().st_size if target.exists() else None
    try:
        with naming(target), target.open("ab") as stream:
            stream.write(data)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
    except BaseException:
        if target.exists():
            os.truncate(target, before or 0)
        raise


def fsync(path: Path) -> None:
    """Flush a file's data, or a folder's entries, to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sweep_temporary(folder: Path) -> None:
    """Remove what a killed writer left under `folder`. Call with the stage's lock held."""
    for path in folder.rglob(f"{TEMPORARY_PREFIX}*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

"""Which models are scored: registry names, their base models, or plain folders.

dsm        newest version of the registered model dsm
dsm:3      its version 3
base:dsm   the model that the newest version was trained from (base:dsm:3 likewise)
PATH       a Hugging Face folder
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workspace import registry
from workspace.config import hash_json
from workspace.errors import MissingInputError, UserError
from workspace.ids import hash_file
from workspace.paths import Workspace
from workspace.registry import ModelVersion

_DECISIVE = frozenset({".json", ".safetensors", ".model", ".jinja", ".txt"})
# How it was made, not what it is.
_RECORDS = frozenset({"manifest.json", "trainer_state.json", "run.json"})


@dataclass(frozen=True)
class ScoredModel:
    """A model folder; `name` and `version` are set for registered models that were trained here."""

    label: str
    path: Path
    hash: str
    name: str = ""
    version: int = 0


def resolve(workspace: Workspace, specs: Sequence[str]) -> list[ScoredModel]:
    """The models that `specs` name, in order, each once.

    Raises `MissingInputError` when a registered model does not exist, `UserError` for a folder
    without a model.
    """
    found: list[ScoredModel] = []
    for spec in specs:
        model = _resolve(workspace, spec)
        if any(known.path == model.path for known in found):
            continue
        if any(known.label == model.label for known in found):
            model = replace(model, label=str(model.path))
        found.append(model)
    return found


def _resolve(workspace: Workspace, spec: str) -> ScoredModel:
    if spec.startswith("base:"):
        version = _registered(workspace, spec.removeprefix("base:"))
        label = f"{version.name}:{version.version} base"
        return ScoredModel(label, *_open_folder(workspace, version.base_model))
    if "/" in spec or Path(spec).is_dir():
        path, content = _open_folder(workspace, spec)
        return ScoredModel("/".join(path.parts[-2:]), path, content)
    version = _registered(workspace, spec)
    path, content = _open_folder(workspace, version.path)
    return ScoredModel(
        f"{version.name}:{version.version}", path, content, version.name, version.version
    )


def _registered(workspace: Workspace, spec: str) -> ModelVersion:
    name, _, number = spec.partition(":")
    if number and not number.isdecimal():
        raise UserError(f"model {spec!r}: a version is a number, as in dsm:3")
    known = registry.versions(workspace, name)
    chosen = [v for v in known if not number or v.version == int(number)]
    if not chosen:
        raise MissingInputError(
            f"no model {spec!r} is registered in {workspace.models}: "
            "run `python -m flows.train`, or give a model folder"
        )
    return chosen[-1]


def _open_folder(workspace: Workspace, place: str) -> tuple[Path, str]:
    path = Path(place).expanduser()
    if not path.is_absolute() and (workspace.root / path).is_dir():
        path = workspace.root / path
    path = path.resolve()
    if not (path / "config.json").is_file():
        raise UserError(f"{path} is not a Hugging Face model folder (no config.json)")
    return path, hash_folder(path)


def hash_folder(folder: Path) -> str:
    """Hash of the files that decide what a model answers (weights, tokenizer, configuration)."""
    files = sorted(
        path
        for path in folder.iterdir()
        if path.suffix in _DECISIVE and path.name not in _RECORDS and path.is_file()
    )
    return hash_json([[p.name, _hash_once(p, *_stamp(p))] for p in files])


def _stamp(path: Path) -> tuple[int, int]:
    state = path.stat()
    return state.st_size, state.st_mtime_ns


@functools.lru_cache(maxsize=1024)
def _hash_once(path: Path, size: int, modified_ns: int) -> str:
    """A stage plans several times in a process; weights are read once."""
    return hash_file(path)

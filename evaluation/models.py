"""Which models are scored: registry names, their base models, folders, or endpoints.

dsm            newest version of the registered model dsm
dsm:3          its version 3
base:dsm       the model that the newest version was trained from (base:dsm:3 likewise)
PATH           a Hugging Face folder
http://HOST/v1#MODEL   a model behind an OpenAI-compatible endpoint
LABEL=...      any of these under a name of your own

What is behind an endpoint cannot be hashed: its address and model name stand for it. Give another
label when the weights behind it have changed.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from workspace import registry
from workspace.config import hash_json
from workspace.errors import MissingInputError, UserError
from workspace.ids import hash_file
from workspace.paths import Workspace
from workspace.registry import ModelVersion

_DECISIVE = frozenset({".json", ".safetensors", ".model", ".jinja", ".txt"})
# How it was made, not what it is.
_RECORDS = frozenset({"manifest.json", "trainer_state.json", "run.json"})
_LABEL = re.compile(r"[^\W_][\w .:+@-]{0,63}")


@dataclass(frozen=True)
class Endpoint:
    """Where an OpenAI-compatible server answers (`url` ends before `/chat/completions`)."""

    url: str
    model: str


@dataclass(frozen=True)
class ScoredModel:
    """A model folder or an endpoint; `name` and `version` are set for models trained here.

    `is_chat` ones get prompts in their chat form, others as plain text.
    """

    label: str
    path: Path | None
    hash: str
    name: str = ""
    version: int = 0
    endpoint: Endpoint | None = None
    is_chat: bool = True

    @property
    def place(self) -> str:
        """Where it is, for people."""
        if self.endpoint is not None:
            return f"{self.endpoint.url}#{self.endpoint.model}"
        return str(self.path)


def resolve(workspace: Workspace, specs: Sequence[str]) -> list[ScoredModel]:
    """The models that `specs` name, in order, each once.

    Raises `MissingInputError` when a registered model does not exist, `UserError` for a folder
    without a model, a bad address, or a label given twice.
    """
    found: list[ScoredModel] = []
    for spec in specs:
        label, bare = _split_label(spec)
        model = _resolve(workspace, bare)
        if label:
            model = replace(model, label=label)
        elif any(known.place == model.place for known in found):
            continue
        elif any(known.label == model.label for known in found):
            model = replace(model, label=model.place)
        if any(known.label == model.label for known in found):
            raise UserError(f"models: two are called {model.label!r}: give each its own LABEL=")
        found.append(model)
    return found


def _split_label(spec: str) -> tuple[str, str]:
    """The label before the first `=`, "" when there is none; a path may hold one as well."""
    label, separator, rest = spec.partition("=")
    if not separator or "/" in label:
        return "", spec
    check_label(label)
    if not rest:
        raise UserError(f"model {spec!r}: nothing follows the label")
    return label, rest


def check_label(label: str) -> None:
    """Raises `UserError` for what no model may be called."""
    if not _LABEL.fullmatch(label):
        raise UserError(
            f"model {label!r}: a label is 1 to 64 letters, digits, blanks and . : + @ _ -"
        )


def _resolve(workspace: Workspace, spec: str) -> ScoredModel:
    if re.match(r"[A-Za-z]+://", spec):
        return _open_endpoint(spec)
    if spec.startswith("base:"):
        version = _registered(workspace, spec.removeprefix("base:"))
        label = f"{version.name}:{version.version} base"
        return _of_folder(label, workspace, version.base_model)
    if "/" in spec or Path(spec).is_dir():
        return _of_folder("", workspace, spec)
    version = _registered(workspace, spec)
    found = _of_folder(f"{version.name}:{version.version}", workspace, version.path)
    return replace(found, name=version.name, version=version.version)


def _of_folder(label: str, workspace: Workspace, place: str) -> ScoredModel:
    path = _open_folder(workspace, place)
    return ScoredModel(
        label or "/".join(path.parts[-2:]),
        path,
        hash_folder(path),
        is_chat=_has_chat_template(path),
    )


def _has_chat_template(folder: Path) -> bool:
    if (folder / "chat_template.jinja").is_file():
        return True
    config = folder / "tokenizer_config.json"
    try:
        return bool(json.loads(config.read_text(encoding="utf-8")).get("chat_template"))
    except FileNotFoundError:
        return False
    except (ValueError, AttributeError) as error:
        raise UserError(f"{config} is no JSON object: {error}") from error


def _open_endpoint(spec: str) -> ScoredModel:
    address, _, model = spec.partition("#")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or not model:
        raise UserError(f"model {spec!r}: an endpoint is given as http://HOST:PORT/v1#MODEL")
    if parts.username or parts.password or parts.query:
        raise UserError(
            f"model {parts.scheme}://{parts.hostname}...: an address holds no key: "
            "name an environment variable by `api_key_env`"
        )
    endpoint = Endpoint(address.rstrip("/"), model)
    return ScoredModel(model, None, hash_json([endpoint.url, endpoint.model]), endpoint=endpoint)


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


def _open_folder(workspace: Workspace, place: str) -> Path:
    path = Path(place).expanduser()
    if not path.is_absolute() and (workspace.root / path).is_dir():
        path = workspace.root / path
    path = path.resolve()
    if not (path / "config.json").is_file():
        raise UserError(f"{path} is not a Hugging Face model folder (no config.json)")
    if next(path.glob("*.safetensors"), None) is None:
        raise UserError(f"{path} holds no weights (*.safetensors)")
    return path


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

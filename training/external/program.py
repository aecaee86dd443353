"""What every external program is asked for, and what it is given.

A program is started by `training.trainers.external` on each rank. It writes its checkpoints under
`Work.folder`, which outlives the attempts, and goes on from the newest of them by itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict

from training.trainers.ability import Ability
from training.trainers.settings import StageName
from training.trainers.spec import TrainSpec

LAUNCH_NAME = "launch.json"


class Work(NamedTuple):
    """A stage as a program sees it."""

    spec: TrainSpec
    nodes: int
    processes_per_node: int
    gpus_per_node: int
    architecture: dict[str, Any]  # config.json of the model
    rows: int  # of the training view
    steps: int  # optimizer steps of the stage
    run: str

    @property
    def folder(self) -> Path:
        """Data, checkpoints and logs of the program, over all attempts."""
        return self.spec.stage_dir / "external"

    @property
    def train_file(self) -> Path:
        return self.folder / "data" / "train"

    @property
    def validation_file(self) -> Path:
        return self.folder / "data" / "validation"


class Rendered(NamedTuple):
    """Configuration files by name, and what a rank (or the driver) runs.

    In the command, `{files}` stands for the folder of the files and `{python}` for the interpreter.
    """

    files: dict[str, str]
    command: tuple[str, ...]


class Launch(BaseModel):
    """`launch.json`: what `training.trainers.external` is told beside the specification."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    program: str
    command: tuple[str, ...]  # `{python}`: the interpreter of the rank
    working_folder: str
    is_driven: bool
    nodes: int
    gpus_per_node: int
    steps: int
    rows: int
    tokens: int


class Program(Protocol):
    """One program."""

    name: str
    stages: Mapping[StageName, str]  # to the view that it reads
    ability: Ability  # the layouts that its configuration can be told
    is_driven: bool  # rank 0 starts it and Ray spreads it; else each rank runs a part of it

    def cure(self, folder: str, python: str) -> str:
        """What to do where the program is missing, "" where it is there."""
        ...

    def write_data(self, work: Work) -> None:
        """Write `train_file` and, where there is one, `validation_file`, as the program reads."""
        ...

    def render(self, work: Work) -> Rendered: ...

    def newest_step(self, folder: Path) -> int:
        """The step of the newest checkpoint under `Work.folder`, 0 when there is none."""
        ...

    def export(self, folder: Path, step: int, target: Path) -> tuple[str, ...]:
        """The command that writes the weights of `step` as safetensors into `target`; empty when
        `weights` is such a folder already."""
        ...

    def weights(self, folder: Path, step: int) -> Path: ...


def nest(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a.b": 1}` as `{"a": {"b": 1}}`."""
    nested: dict[str, Any] = {}
    for name, value in settings.items():
        place = nested
        *groups, last = name.split(".")
        for group in groups:
            place = place.setdefault(group, {})
        place[last] = value
    return nested


def to_toml(settings: Mapping[str, Any]) -> str:
    """A TOML document of `nest(settings)`; values: numbers, booleans, texts, lists of them."""
    return "\n".join(_toml_lines(nest(settings), "")) + "\n"


def _toml_lines(table: Mapping[str, Any], name: str) -> list[str]:
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [f"[{name}]"] if name and (plain or not table) else []
    lines += [f"{key} = {_toml_value(value)}" for key, value in plain.items()]
    for key, value in table.items():
        if isinstance(value, dict):
            lines += ["", *_toml_lines(value, f"{name}.{key}" if name else key)]
    return lines


def _toml_value(value: Any) -> str:
    # JSON's texts, numbers and lists are TOML's, but for one character that TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

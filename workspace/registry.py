"""Model registry: `models/<name>.json`, a list of versions with lineage, scores and stage.

    register(ws, "dsm", run="sft-1", path="runs/sft-1/final", lineage={...}) -> ModelVersion
    set_stage(ws, "dsm", 1, "promoted", reasons=["rtl_completion: +4.0 points [+1.2, +6.9]"])

One file per model name; a change reads, alters and atomically rewrites it under the `models` lock.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from workspace import publish
from workspace.errors import UserError
from workspace.locking import stage_lock
from workspace.manifest import now
from workspace.paths import Workspace, safe_name

Stage = Literal["candidate", "promoted", "retired"]


class Score(BaseModel):
    """A metric of a benchmark, and what it may be compared with."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    value: float
    low: float | None = Field(default=None, description="of the 95 % interval")
    high: float | None = None
    problems: int | None = Field(default=None, description="that the value is a mean over")
    title: str = Field(default="", description="of the benchmark")
    evaluation: str = Field(default="", description="id of the evaluation that measured it")
    date: str = Field(default="", description="UTC, ISO 8601")
    data_hash: str = ""
    grader_version: str = ""
    tool_versions: dict[str, str] = Field(default_factory=dict)


class ModelVersion(BaseModel):
    """One trained model."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    version: int
    run: str
    path: str = Field(description="folder with the Hugging Face files, relative to the workspace")
    base_model: str
    lineage: dict[str, str] = Field(
        description="corpus, graph, dataset, run -> key; base_model -> content hash; code -> "
        "version; recipe -> NAME@HASH, where the run began with one"
    )
    scores: dict[str, Score] = Field(
        default_factory=dict, description="`<benchmark>/<metric>` -> its newest score"
    )
    stage: Stage = "candidate"
    reasons: tuple[str, ...] = Field(default=(), description="why it has its stage")
    created: str

    @field_validator("scores", mode="before")
    @classmethod
    def _with_bare_values(cls, scores: Any) -> Any:
        """Registries of earlier versions hold the values alone."""
        if not isinstance(scores, dict):
            return scores
        return {
            name: {"value": score} if isinstance(score, int | float) else score
            for name, score in scores.items()
        }


def versions(workspace: Workspace, name: str) -> list[ModelVersion]:
    """All versions of `name`, oldest first; empty when there are none."""
    path = _file(workspace, name)
    if not path.exists():
        return []
    return _Versions.model_validate_json(path.read_text(encoding="utf-8")).versions


def register(
    workspace: Workspace,
    name: str,
    *,
    run: str,
    path: str,
    base_model: str,
    lineage: dict[str, str],
) -> ModelVersion:
    """Add a version as `candidate`; the same run and lineage is registered once."""
    with stage_lock(workspace, "models", wait_s=30):
        known = versions(workspace, name)
        for version in known:
            if version.run == run and version.lineage == lineage and version.path == path:
                return version
        added = ModelVersion(
            name=name,
            version=len(known) + 1,
            run=run,
            path=path,
            base_model=base_model,
            lineage=lineage,
            created=now(),
        )
        _save(workspace, name, [*known, added])
        return added


def record_scores(
    workspace: Workspace, name: str, version: int, scores: Mapping[str, Score]
) -> ModelVersion:
    """Merge `scores` into a version."""
    return _change(
        workspace,
        name,
        version,
        lambda known: known.model_copy(update={"scores": {**known.scores, **scores}}),
    )


def set_stage(
    workspace: Workspace, name: str, version: int, stage: Stage, *, reasons: Sequence[str] = ()
) -> ModelVersion:
    """Promote, retire or demote a version; promoting retires the one promoted before."""

    def retire(other: ModelVersion) -> ModelVersion:
        if stage != "promoted" or other.stage != "promoted":
            return other
        why = (f"version {version} was promoted in its place",)
        return other.model_copy(update={"stage": "retired", "reasons": why})

    return _change(
        workspace,
        name,
        version,
        lambda known: known.model_copy(update={"stage": stage, "reasons": tuple(reasons)}),
        others=retire,
    )


class _Versions(BaseModel):
    versions: list[ModelVersion]


def _change(
    workspace: Workspace,
    name: str,
    version: int,
    change: Callable[[ModelVersion], ModelVersion],
    *,
    others: Callable[[ModelVersion], ModelVersion] = lambda known: known,
) -> ModelVersion:
    """Alter a version, and the others with it: readers see all of it or nothing."""
    with stage_lock(workspace, "models", wait_s=30):
        known = versions(workspace, name)
        if all(one.version != version for one in known):
            raise UserError(f"model {name!r} has no version {version} in {workspace.models}")
        changed = [change(one) if one.version == version else others(one) for one in known]
        _save(workspace, name, changed)
    return next(one for one in changed if one.version == version)


def _save(workspace: Workspace, name: str, all_versions: list[ModelVersion]) -> None:
    publish.write_text(
        _file(workspace, name), _Versions(versions=all_versions).model_dump_json(indent=2) + "\n"
    )


def _file(workspace: Workspace, name: str) -> Path:
    return workspace.models / f"{safe_name(name)}.json"

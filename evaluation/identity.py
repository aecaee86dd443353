"""What two scores must share to be compared: problems, grader, tools, sampling, arithmetic.

The same 780 answers score 72.3 % on Icarus Verilog 11 and 70.4 % on 12 (17 verdicts differ), so a
difference between scores of two tool versions says nothing about the models. Weights in bfloat16
answer otherwise than in float32, and vLLM otherwise than transformers; what an endpoint computes
with is not known, so its form stands for it where no model is a folder.

A field that an evaluation does not name (one of an earlier version of this project) is comparable
within that evaluation alone.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from evaluation.published import Evaluation
from evaluation.results import BenchmarkResult

_Named = tuple[tuple[str, str], ...]
# Temperature decides about drawn answers alone: the others are the most probable ones.
_ANSWERING = ("max_answer_tokens", "temperature", "answers")


class Identity(BaseModel):
    """Where a score was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    benchmark: str
    data_hash: str
    grader_version: str
    tool_versions: tuple[tuple[str, str], ...]
    answering: tuple[tuple[str, str], ...] = ()  # settings that answers depend on

    def differences(self, other: Identity) -> list[str]:
        """Each field that differs, by name, with both values; empty when comparable."""
        pairs = [
            ("benchmark", self.benchmark, other.benchmark),
            ("data_hash", self.data_hash, other.data_hash),
            ("grader_version", self.grader_version, other.grader_version),
        ]
        pairs += _named("tool_versions.", self.tool_versions, other.tool_versions, "not used")
        pairs += _named("", self.answering, other.answering, "the default")
        return [f"{name}: {a} and {b}" for name, a, b in pairs if a != b]


def _named(prefix: str, mine: _Named, theirs: _Named, missing: str) -> list[tuple[str, str, str]]:
    first, second = dict(mine), dict(theirs)
    return [
        (f"{prefix}{name}", first.get(name, missing), second.get(name, missing))
        for name in sorted(first.keys() | second.keys())
    ]


def identity_of(evaluation: Evaluation, result: BenchmarkResult) -> Identity:
    """Where the scores of `result`, which is of `evaluation`, were measured."""
    unnamed = f"not recorded (evaluation {evaluation.summary.id})"
    return Identity(
        benchmark=result.name,
        data_hash=result.data_hash or unnamed,
        grader_version=result.grader_version or unnamed,
        tool_versions=tuple(sorted(result.tool_versions.items())),
        answering=tuple(
            (name, str(value))
            for name, value in _answering(evaluation, result)
            if value is not None
        ),
    )


def _answering(evaluation: Evaluation, result: BenchmarkResult) -> list[tuple[str, Any]]:
    """What answers depend on besides the model, None where it was left at its default."""
    settings, inputs = evaluation.manifest.settings, evaluation.manifest.inputs
    drawn = result.metric.startswith("pass@")
    found = [(name, settings.get(name)) for name in _ANSWERING if drawn or name != "temperature"]
    if "dtype" in inputs:  # of folders; the setting may be auto
        return [*found, ("dtype", inputs["dtype"]), ("engine", settings.get("engine"))]
    return [*found, ("endpoint_api", settings.get("endpoint_api"))]

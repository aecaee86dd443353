"""What two scores must share before they may be compared: problems, grader, tools, sampling.

The same 780 answers score 72.3 % on Icarus Verilog 11 and 70.4 % on 12 (17 verdicts differ), so a
difference between scores of two tool versions says nothing about the models.

A field that an evaluation does not name (one of an earlier version of this project) is comparable
within that evaluation alone.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from evaluation.published import Evaluation
from evaluation.results import BenchmarkResult


class Identity(BaseModel):
    """Where a score was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    benchmark: str
    data_hash: str
    grader_version: str
    tool_versions: tuple[tuple[str, str], ...]
    temperature: str = ""  # of answers drawn for pass@k, else empty

    def differences(self, other: Identity) -> list[str]:
        """Each field that differs, by name, with both values; empty when comparable."""
        pairs = [
            ("benchmark", self.benchmark, other.benchmark),
            ("data_hash", self.data_hash, other.data_hash),
            ("grader_version", self.grader_version, other.grader_version),
            ("temperature", self.temperature, other.temperature),
        ]
        mine, theirs = dict(self.tool_versions), dict(other.tool_versions)
        pairs += [
            (f"tool_versions.{name}", mine.get(name, "not used"), theirs.get(name, "not used"))
            for name in sorted(mine.keys() | theirs.keys())
        ]
        return [f"{name}: {a} and {b}" for name, a, b in pairs if a != b]


def identity_of(evaluation: Evaluation, result: BenchmarkResult) -> Identity:
    """Where the scores of `result`, which is of `evaluation`, were measured."""
    drawn = result.metric.startswith("pass@")
    unnamed = f"not recorded (evaluation {evaluation.summary.id})"
    return Identity(
        benchmark=result.name,
        data_hash=result.data_hash or unnamed,
        grader_version=result.grader_version or unnamed,
        tool_versions=tuple(sorted(result.tool_versions.items())),
        temperature=str(evaluation.manifest.settings.get("temperature", "")) if drawn else "",
    )

"""Published evaluations of a workspace: their summaries, and how each problem was answered.

for evaluation in read_evaluations(workspace):     # newest first
    evaluation.summary, evaluation.manifest.created
answered = read_answered(evaluation, "rtl_completion", "dsm:2")
answered.values["row id"]                           # share of right answers
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
from pydantic import ValidationError

from evaluation.publication import ModelSummary, Summary
from evaluation.results import BenchmarkResult
from workspace.errors import CorruptWorkspaceError
from workspace.manifest import Manifest, read_manifest
from workspace.paths import Workspace

RESULTS = "results.json"
SAMPLES_FILE = "samples.parquet"
REPORT = "report.html"


class Evaluation(NamedTuple):
    """One published evaluation."""

    folder: Path
    summary: Summary
    manifest: Manifest

    def result(self, benchmark: str) -> BenchmarkResult | None:
        """Its result on `benchmark`."""
        return next((r for r in self.summary.benchmarks if r.name == benchmark), None)

    def model(self, content: str) -> ModelSummary | None:
        """Its model with the weights `content` (a hash), whatever it was called."""
        return next((m for m in self.summary.models if m.hash == content), None)


class Answered(NamedTuple):
    """A model's value on each problem that has a verdict, by row id.

    It is the share of right answers, or the mean score of a benchmark that gives parts of 1.
    """

    values: dict[str, float]
    clusters: dict[str, str]
    answers: int
    without_verdict: int  # of the answers


def read_summary(folder: Path) -> Summary:
    """The `results.json` of an evaluation. Raises `CorruptWorkspaceError` naming the file."""
    path = folder / RESULTS
    try:
        return Summary.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        raise CorruptWorkspaceError(
            f"{path} cannot be read as the results of an evaluation: {error}. Score again, or "
            "remove its folder"
        ) from error


def read_evaluations(
    workspace: Workspace, unreadable: dict[str, str] | None = None
) -> list[Evaluation]:
    """All that are published, the newest first.

    One that cannot be read raises `CorruptWorkspaceError`, or goes into `unreadable` by its id.
    """
    found = []
    for folder in sorted(workspace.evaluations.glob("*/")):
        try:
            manifest = read_manifest(folder)
            if manifest is not None:
                found.append(Evaluation(folder, read_summary(folder), manifest))
        except CorruptWorkspaceError as error:
            if unreadable is None:
                raise
            unreadable[folder.name] = str(error)
    return sorted(found, key=lambda one: (one.manifest.created, one.folder.name), reverse=True)


def read_answered(evaluation: Evaluation, benchmark: str, model: str) -> Answered:
    """How `model` (its label in the evaluation) answered `benchmark`, by the audited rules."""
    result = evaluation.result(benchmark)
    assert result is not None, f"{evaluation.folder} has no {benchmark}"
    whole = result.metric == "accuracy" or result.metric.startswith("pass@")
    table = pq.read_table(
        evaluation.folder / SAMPLES_FILE,
        columns=["row_id", "score", "cluster"],
        filters=[("benchmark", "=", benchmark), ("model", "=", model)],
    )
    scores: dict[str, list[float]] = {}
    clusters: dict[str, str] = {}
    rows = [row for row in table.to_pylist() if row["row_id"] not in result.excluded]
    for row in rows:
        clusters[row["row_id"]] = row["cluster"]
        if row["score"] is not None:
            value = float(row["score"] == 1.0) if whole else float(row["score"])
            scores.setdefault(row["row_id"], []).append(value)
    return Answered(
        {row_id: sum(found) / len(found) for row_id, found in sorted(scores.items())},
        clusters,
        len(rows),
        len(rows) - sum(map(len, scores.values())),
    )

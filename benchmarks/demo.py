"""The figures of a finished demo: `python -m benchmarks.demo WORKSPACE`, after `make demo`.

In: what the five stages published (manifests, `results.json`, `samples.parquet`). Out:
`results/demo_run.json`: scores of the base and the trained model with the interval of their paired
difference, training speed, seconds of each stage. Nothing is run again; commit and date in the file
are those of the demo's score. Read it on the machine that ran the demo: that is the one it names.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

import pyarrow.parquet as pq

from benchmarks.measure import Report
from evaluation.benchmarks.grading import RAN
from evaluation.published import SAMPLES_FILE, Evaluation, read_evaluations
from evaluation.results import Comparison, compare
from workspace.errors import UserError
from workspace.manifest import Manifest, require_manifest
from workspace.paths import Workspace

Row = Mapping[str, Any]


class Measured(NamedTuple):
    """One metric of one benchmark, by answer."""

    benchmark: str
    metric: str
    value: Callable[[Row], float]


METRICS: Final = (
    Measured("domain_qa_open_book", "accuracy", lambda row: row["score"] == 1),
    Measured("domain_qa_open_book", "mentions", lambda row: row["score"] == 1 or row["mentions"]),
    Measured("domain_qa_closed_book", "accuracy", lambda row: row["score"] == 1),
    Measured("domain_qa_closed_book", "mentions", lambda row: row["score"] == 1 or row["mentions"]),
    Measured("rtl_completion", "pass@1", lambda row: row["score"] == 1),
    Measured("rtl_completion", "compiles", lambda row: row["outcome"] in RAN),
)


def differences(
    rows: list[Row], models: list[str], seed: int
) -> Iterator[tuple[Measured, Comparison]]:
    """The last model against the first on each metric, over the problems of both."""
    clusters = {row["row_id"]: row["cluster"] for row in rows}
    for measured in METRICS:
        before, after = (_by_problem(rows, measured, model) for model in (models[0], models[-1]))
        found = compare(
            before, after, clusters, model=models[-1], baseline=models[0],
            metric=measured.metric, samples=1, seed=seed,
        )  # fmt: skip
        if found is not None:
            yield measured, found


def _by_problem(rows: list[Row], measured: Measured, model: str) -> dict[str, float]:
    """Row id -> mean over its answers that have a verdict."""
    values = defaultdict(list)
    for row in rows:
        is_asked = (row["benchmark"], row["model"]) == (measured.benchmark, model)
        if is_asked and row["score"] is not None:
            values[row["row_id"]].append(float(measured.value(row)))
    return {row_id: fmean(found) for row_id, found in values.items()}


def add_scores(report: Report, evaluation: Evaluation) -> None:
    """Both models' scores as published, and the paired difference in points."""
    rows = pq.read_table(evaluation.folder / SAMPLES_FILE).to_pylist()
    models = [model.label for model in evaluation.summary.models]
    seed = evaluation.manifest.settings["seed"]
    for measured, found in differences(rows, models, seed):
        result = evaluation.result(measured.benchmark)
        assert result is not None, "samples of it are there"
        name = f"{result.title}, {measured.metric}"
        scores = {model: result.scores[model][measured.metric] for model in models}
        gain = scores[found.model].value - scores[found.baseline].value
        if abs(gain - found.difference) > 1e-9:
            raise UserError(f"{evaluation.folder}: {name} differs between results and samples")
        for model in (found.baseline, found.model):
            score = scores[model]
            interval = f"% [{score.low:.1%}, {score.high:.1%}], {score.problems} problems"
            report.add(f"{name}: {model}", 100 * score.value, interval)
        interval = (
            f"points [{100 * found.low:+.1f}, {100 * found.high:+.1f}], p = {found.p_value:.2g}"
        )
        report.add(f"{name}: difference", 100 * found.difference, interval)


def add_training(report: Report, final: Manifest) -> None:
    """Steps, tokens and speed of each stage of the run."""
    for stage, note in final.notes.items():
        report.add(f"training, {stage}: steps", final.counts_out[f"{stage}_steps"])
        report.add(f"training, {stage}: tokens", note["tokens"])
        report.add(f"training, {stage}: tokens/s", note["tokens_per_s"], "of its steps' time")


def add_seconds(report: Report, stages: Mapping[str, Manifest]) -> None:
    """Wall time by the manifests; starting commands and Prefect is not in it."""
    for flow, manifest in stages.items():
        report.add(f"{flow}: wall time", manifest.seconds, "s")
    report.add("all stages: wall time", sum(m.seconds for m in stages.values()), "s")


def add_counts(report: Report, stages: Mapping[str, Manifest]) -> None:
    """Sizes of what was made."""
    corpus, data = stages["ingest"].counts_out, stages["build_datasets"].counts_out
    for name in ("documents", "pages", "tables", "modules", "quarantine"):
        report.add(f"corpus: {name}", corpus[name])
    for name in ("entities", "relations"):
        report.add(f"graph: {name}", stages["build_graph"].counts_out[name])
    report.add("data set: rows", data["rows"])


def read_stages(workspace: Workspace) -> tuple[dict[str, Manifest], Evaluation]:
    """The newest manifest of each flow, and the newest evaluation.

    Raises `MissingInputError` or `UserError` naming what is not finished.
    """
    evaluations = read_evaluations(workspace)
    runs = sorted(workspace.runs.glob("*/final"))
    if not evaluations or not runs:
        raise UserError(f"{workspace.root} holds no scored model: run `make demo` to its end")
    finals = [require_manifest(folder, made_by="train") for folder in runs]
    evaluation = evaluations[0]
    stages = {
        "ingest": require_manifest(workspace.corpus, made_by="ingest"),
        "build_graph": require_manifest(workspace.graph, made_by="build_graph"),
        "build_datasets": require_manifest(
            workspace.dataset(evaluation.summary.dataset), made_by="build_datasets"
        ),
        "train": max(finals, key=lambda manifest: manifest.created),
        "score": evaluation.manifest,
    }
    return stages, evaluation


def measure(workspace: Workspace) -> Report:
    """The report of a finished demo."""
    stages, evaluation = read_stages(workspace)
    score = evaluation.manifest
    report = Report("demo", "run", commit=score.code_version, date=score.created)
    report.notes.append(f"one run, one seed; trained and scored in {score.inputs['dtype']}")
    add_counts(report, stages)
    add_scores(report, evaluation)
    add_training(report, stages["train"])
    add_seconds(report, stages)
    return report


def main(arguments: list[str] | None = None) -> int:
    """Read the workspace, print the figures and keep them."""
    parser = argparse.ArgumentParser(description="Keep the figures of a finished demo.")
    parser.add_argument("workspace", type=Path)
    return measure(Workspace(parser.parse_args(arguments).workspace)).finish()


if __name__ == "__main__":
    sys.exit(main())

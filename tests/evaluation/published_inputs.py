"""Builders for tests: registered models, and published evaluations of them without running any.

The answers are given; results, samples and manifest are made by what makes them in a real run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from scoring_inputs import make_row

from evaluation.benchmarks import BENCHMARKS
from evaluation.benchmarks.grading import Graded
from evaluation.models import hash_folder
from evaluation.problems import SAMPLES, cluster_of, prompt_text
from evaluation.publication import ModelSummary, Summary
from evaluation.results import BenchmarkResult, summarise
from workspace import publish, registry
from workspace.manifest import Manifest, describe_file, write_manifest
from workspace.paths import Workspace

# Rows of right answers: True, False, or None for no verdict; several a problem for sampled ones.
Answers = Sequence[Sequence[bool | None]]
IDENTITY = {
    "data_hash": "d1", "grader_version": "g1", "tool_versions": {"iverilog": "Icarus Verilog 12.0"},
}  # fmt: skip


def add_model(workspace: Workspace, run: str, *, base: str = "base") -> Path:
    """Register a version of `dsm`; its weights, which nothing reads, only tell it apart."""
    for folder in (workspace.root / base, workspace.run(run) / "final"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").write_text(folder.parent.name)
    final = workspace.run(run) / "final"
    registry.register(
        workspace, "dsm", run=run, path=str(final.relative_to(workspace.root)), base_model=base,
        lineage={"run": run},
    )  # fmt: skip
    return final


def of(problems: int, right: int) -> list[list[bool | None]]:
    """One answer a problem, the first `right` of them right."""
    return [[index < right] for index in range(problems)]


def publish_evaluation(
    workspace: Workspace,
    name: str,
    models: Mapping[str, Path],
    answers: Mapping[str, Mapping[str, Answers]],
    *,
    created: str = "2026-01-01T00:00:00+00:00",
    settings: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
    **identity: Any,
) -> Path:
    """Publish evaluation `name`: `answers` by benchmark and model label, the baseline first."""
    folder = workspace.evaluation(name)
    results, samples = [], []
    for benchmark, by_model in answers.items():
        result, rows = _benchmark(benchmark, by_model)
        results.append(result.model_copy(update={**IDENTITY, **identity}))
        samples += rows
    summary = Summary(
        id=name,
        key=name * 2,
        dataset="dsm",
        models=[
            ModelSummary(label=label, path=str(path), hash=hash_folder(path), registered=True)
            for label, path in models.items()
        ],
        inputs={},
        sandbox="bwrap",
        benchmarks=results,
    )
    publish.write_json(folder / "results.json", summary.model_dump(mode="json"))
    with publish.atomic_path(folder / "samples.parquet") as path:
        pq.write_table(pa.Table.from_pylist(samples, schema=SAMPLES), path)
    publish.write_text(folder / "report.html", "<!doctype html>")
    write_manifest(
        folder,
        Manifest(
            stage="evaluation", key=name * 2, fingerprint="f", code_version="test",
            inputs=dict(inputs or {}),
            settings={"temperature": 0.6, **(settings or {})}, created=created,
            files=[describe_file(folder, folder / file) for file in
                   ("results.json", "samples.parquet", "report.html")],
        ),
    )  # fmt: skip
    return folder


def _benchmark(
    name: str, by_model: Mapping[str, Answers]
) -> tuple[BenchmarkResult, list[dict[str, Any]]]:
    count = max(len(answers) for answers in by_model.values())
    rows = [make_row(f"{name}-{index:04d}", f"Question {index}?", "yes") for index in range(count)]
    graded = {
        model: {
            row["row_id"]: [_graded(right) for right in answers]
            for row, answers in zip(rows, given, strict=False)
        }
        for model, given in by_model.items()
    }
    result = summarise(
        BENCHMARKS[name], rows, graded, ks=(1,), seed=0, seconds=dict.fromkeys(by_model, 1.0)
    )
    samples = [
        {
            "benchmark": name, "row_id": row["row_id"], "model": model, "sample": index,
            **one._asdict(), "mentions": one.passed, "task": row["task"], "difficulty": 1,
            "prompt": prompt_text(row), "reference": row["answer"], "verifier": row["verifier"],
            "cluster": cluster_of(row), "document": "manual.pdf", "page": 1,
        }
        for model, answers in graded.items()
        for row in rows
        for index, one in enumerate(answers.get(row["row_id"], []))
    ]  # fmt: skip
    return result, samples


def _graded(right: bool | None) -> Graded:
    if right is None:
        return Graded("?", None, "infra:iverilog", "not installed")
    return Graded("yes", 1.0, "pass", "") if right else Graded("no", 0.0, "mismatch", "said no")

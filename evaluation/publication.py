"""What an evaluation publishes: the summary behind `results.json` and the rows of the samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from evaluation.benchmarks.grading import mentions
from evaluation.models import ScoredModel
from evaluation.problems import Problems, cluster_of, prompt_text
from evaluation.results import BenchmarkResult, Frozen
from evaluation.shard import ShardResult
from evaluation.verifiers import sandbox
from workspace.manifest import read_manifest
from workspace.paths import Workspace
from workspace.shards import Row, iterate_rows
from workspace.stage import StagePlan


class ModelSummary(Frozen):
    """A scored model as the report names it."""

    label: str
    path: str
    hash: str
    registered: bool
    prompts: Literal["chat", "text"] = "chat"


class Summary(Frozen):
    """`results.json`. The first model is the baseline."""

    id: str
    key: str
    dataset: str
    models: list[ModelSummary]
    inputs: dict[str, str]
    sandbox: str
    benchmarks: list[BenchmarkResult]


def summary_of(
    dataset: str,
    plan: StagePlan,
    scored: Sequence[ScoredModel],
    results: Sequence[BenchmarkResult],
) -> Summary:
    """Everything that the report shows besides the answers themselves."""
    return Summary(
        id=plan.directory.name,
        key=plan.key,
        dataset=dataset,
        models=[
            ModelSummary(
                label=m.label,
                path=m.place,
                hash=m.hash,
                registered=bool(m.name),
                prompts="chat" if m.is_chat else "text",
            )
            for m in scored
        ],
        inputs=plan.inputs,
        sandbox=sandbox.level(),
        benchmarks=list(results),
    )


def sample_rows(
    workspace: Workspace,
    problems: Problems,
    scored: Sequence[ScoredModel],
    done: Mapping[tuple[str, ...], ShardResult],
) -> list[Row]:
    """Rows of `samples.parquet`: by benchmark, problem, model (baseline first), sample."""
    names = _document_names(workspace)
    rows: list[Row] = []
    for found in problems.sets:
        benchmark = found.benchmark.name
        for problem in found.rows:
            shared = _problem_columns(problem, names)
            for model in scored:
                graded = done[model.label, benchmark].answers[problem["row_id"]]
                for index, one in enumerate(graded):
                    rows.append(
                        {
                            "benchmark": benchmark,
                            "model": model.label,
                            "sample": index,
                            **one._asdict(),
                            "mentions": one.passed or mentions(one.answer, problem["answer"]),
                            **shared,
                        }
                    )
    return rows


def _problem_columns(problem: Mapping[str, Any], names: Mapping[str, str]) -> Row:
    documents = problem["doc_ids"] or [""]
    return {
        "row_id": problem["row_id"],
        "task": problem["task"],
        "difficulty": problem["difficulty"],
        "prompt": prompt_text(dict(problem)),
        "reference": problem["answer"],
        "verifier": problem["verifier"],
        "cluster": cluster_of(dict(problem)),
        "document": names.get(documents[0], documents[0][:12]),
        "page": problem["page"],
    }


def _document_names(workspace: Workspace) -> dict[str, str]:
    """File names by document id; empty when the workspace holds no corpus."""
    if read_manifest(workspace.corpus) is None:
        return {}
    columns = ("doc_id", "name")
    return {
        row["doc_id"]: row["name"] for row in iterate_rows(workspace.corpus, "documents", columns)
    }

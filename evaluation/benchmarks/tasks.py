"""Turn rows of the data set into what lm-eval loads: a JSONL file and a YAML that points to it.

    write_task(folder, benchmark, rows, samples=4, ks=(1, 4), temperature=0.6)
    lm_eval --include_path <folder>/tasks --tasks rtl_completion ...      # works as well

A prompt is one user message, with a system message before it or none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from evaluation.benchmarks import Benchmark
from workspace import publish
from workspace.errors import CorruptWorkspaceError

# What lm-eval's documents hold; all texts, so that no type is guessed from the first rows.
DOC_FIELDS = ("row_id", "system", "user", "reference", "verifier", "ground_truth")


def document(row: Mapping[str, Any]) -> dict[str, str]:
    """The lm-eval document of one row. `CorruptWorkspaceError` for a prompt of another shape."""
    messages = json.loads(row["prompt_json"])
    roles = [message["role"] for message in messages]
    if roles not in (["user"], ["system", "user"]):
        raise CorruptWorkspaceError(
            f"row {row['row_id']}: a test prompt is [system,] user, not {roles}"
        )
    return {
        "row_id": row["row_id"],
        "system": messages[0]["content"] if len(messages) == 2 else "",
        "user": messages[-1]["content"],
        "reference": row["answer"],
        "verifier": row["verifier"],
        "ground_truth": row["ground_truth"],
    }


def write_task(
    folder: Path,
    benchmark: Benchmark,
    rows: Iterable[Mapping[str, Any]],
    *,
    samples: int,
    ks: Sequence[int],
    temperature: float,
) -> Path:
    """Write `tasks/<name>.yaml` and its JSONL under `folder`; returns the folder of the YAML."""
    data = (folder / "data" / f"{benchmark.name}.jsonl").resolve()
    lines = [json.dumps(document(row), ensure_ascii=False) + "\n" for row in rows]
    publish.write_text(data, "".join(lines))
    task: dict[str, Any] = {
        "include": str(benchmark.yaml),
        "dataset_kwargs": {
            "data_files": {"test": str(data)},
            "cache_dir": str((folder / "cache").resolve()),
        },
    }
    if benchmark.sampled:
        task["repeats"] = samples
        task["generation_kwargs"] = _sampling(benchmark, temperature)
        task["metric_list"] = [
            {"metric": name, "aggregation": "mean", "higher_is_better": True}
            for name in (*(f"pass@{k}" for k in ks), "compiles")
        ]
    target = folder / "tasks" / f"{benchmark.name}.yaml"
    publish.write_text(target, yaml.safe_dump(task, sort_keys=True))
    return target.parent


def _sampling(benchmark: Benchmark, temperature: float) -> dict[str, Any]:
    from lm_eval.tasks._yaml_loader import load_yaml

    settings: dict[str, Any] = dict(load_yaml(benchmark.yaml, resolve_func=False))
    generation = dict(settings["generation_kwargs"])
    if temperature == 0:
        return {
            "until": generation["until"],
            "max_gen_toks": generation["max_gen_toks"],
            "do_sample": False,
        }
    return {**generation, "temperature": temperature}

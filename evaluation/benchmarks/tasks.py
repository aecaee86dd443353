"""Turn problems into what lm-eval loads: a JSONL file and a YAML that points to it.

    write_task(folder, benchmark, rows, sampling)
    lm_eval --include_path <folder>/tasks --tasks rtl_completion ...      # works as well

A prompt is one user message, with a system message before it or none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from evaluation.benchmarks import Benchmark
from workspace import publish
from workspace.errors import CorruptWorkspaceError

_NONE: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Sampling:
    """How answers are drawn.

    `max_answer_tokens` None takes the benchmark's own. `chat` False asks with plain text.
    """

    samples: int
    ks: tuple[int, ...]
    temperature: float
    seed: int
    max_answer_tokens: int | None = None
    chat: bool = True


def document(row: Mapping[str, Any], excluded: str = "", *, chat: bool = True) -> dict[str, str]:
    """The lm-eval document of one row, all texts, so that no type is guessed from the first rows.

    Plain text (`chat` False) needs a break between system message and question.
    `CorruptWorkspaceError` for a prompt of another shape.
    """
    messages = json.loads(row["prompt_json"])
    roles = [message["role"] for message in messages]
    if roles not in (["user"], ["system", "user"]):
        raise CorruptWorkspaceError(
            f"row {row['row_id']}: a test prompt is [system,] user, not {roles}"
        )
    system = messages[0]["content"] if len(messages) == 2 else ""
    return {
        "row_id": row["row_id"],
        "system": f"{system}\n\n" if system and not chat else system,
        "user": messages[-1]["content"],
        "reference": row["answer"],
        "verifier": row["verifier"],
        "ground_truth": row["ground_truth"],
        "excluded": excluded,
    }


def write_task(
    folder: Path,
    benchmark: Benchmark,
    rows: Iterable[Mapping[str, Any]],
    sampling: Sampling,
    excluded: Mapping[str, str] = _NONE,
    *,
    cache: Path | None = None,
) -> Path:
    """Write `tasks/<name>.yaml` and its JSONL under `folder`; returns the folder of the YAML.

    `excluded` are the problems that the audited score leaves out, and why; `cache` is the folder
    of verdicts that `grading.grade` keeps.
    """
    data = (folder / "data" / f"{benchmark.name}.jsonl").resolve()
    kept = {"cache": str(cache.resolve()) if cache else ""}
    docs = [
        document(row, excluded.get(row["row_id"], ""), chat=sampling.chat) | kept for row in rows
    ]
    publish.write_text(data, "".join(json.dumps(d, ensure_ascii=False) + "\n" for d in docs))
    task: dict[str, Any] = {
        "include": str(benchmark.yaml),
        "task": benchmark.name,
        "dataset_kwargs": {
            "data_files": {"test": str(data)},
            "cache_dir": str((folder / "cache").resolve()),
        },
    }
    if not benchmark.by_likelihood:
        task["generation_kwargs"] = generation_settings(benchmark, sampling)
    if benchmark.sampled:
        task["repeats"] = sampling.samples
        task["metric_list"] = [
            {"metric": name, "aggregation": "mean", "higher_is_better": True}
            for name in _rates(benchmark, sampling)
        ]
    target = folder / "tasks" / f"{benchmark.name}.yaml"
    publish.write_text(target, yaml.safe_dump(task, sort_keys=True))
    return target.parent


def _rates(benchmark: Benchmark, sampling: Sampling) -> list[str]:
    rates = [f"pass@{k}" for k in sampling.ks]
    return [*rates, *(f"official_{r}" for r in rates if benchmark.has_official), "compiles"]


def generation_settings(benchmark: Benchmark, sampling: Sampling) -> dict[str, Any]:
    """What lm-eval tells the model of stopping, length and chance."""
    from lm_eval.tasks._yaml_loader import load_yaml

    assert benchmark.yaml is not None, "one of ours"
    settings: dict[str, Any] = dict(load_yaml(benchmark.yaml, resolve_func=False))
    generation = dict(settings["generation_kwargs"])
    if sampling.max_answer_tokens is not None:
        generation["max_gen_toks"] = sampling.max_answer_tokens
    if not benchmark.sampled:
        return generation
    if sampling.temperature == 0:
        return {
            "until": generation["until"],
            "max_gen_toks": generation["max_gen_toks"],
            "do_sample": False,
        }
    return {**generation, "temperature": sampling.temperature}

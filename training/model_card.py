"""The README.md of a trained model: where it comes from and what may be done with it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from training.run_record import RunRecord
from training.trainers.spec import StageOutcome

_SHOWN = (
    "loss",
    "mean_token_accuracy",
    "entropy",
    "reward",
    "frac_reward_zero_std",
    "no_verdict_rate",
)
_STAGES = {
    "cpt": "Continued pre-training on the documents' text",
    "sft": "Supervised fine-tuning on verified questions and answers",
    "dpo": "Direct preference optimisation on verified right and refused answers",
    "rlvr": "GRPO with mechanically verified rewards",
}


def data_licences(files: Sequence[Path]) -> list[str]:
    """The distinct licences of the rows that the model was trained on."""
    found: set[str] = set()
    for path in files:
        if "licence" in pq.read_schema(path).names:
            column = pq.read_table(path, columns=["licence"])["licence"]
            found |= {str(value) for value in pc.unique(column).to_pylist() if value}
    return sorted(found)


def render(
    record: RunRecord, outcomes: Sequence[StageOutcome], *, licence: str, data: Sequence[str]
) -> str:
    """Markdown with the front matter that model hubs read."""
    front = {
        "license": licence.lower(),
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "base_model": record.base_model,
    }
    lines = [
        "---",
        *(f"{name}: {json.dumps(value)}" for name, value in front.items()),
        "---",
        f"# {record.run}",
        "",
        f"A domain-specific model made from `{record.base_model}`.",
        "",
        "## Training",
        *(line for outcome in outcomes for line in _stage(outcome)),
        "",
        "## Lineage",
        *_table(("what", "key or version"), record.lineage),
        "",
        "## Licences",
        f"- base model: {licence}",
        *(f"- training rows: {name}" for name in data or ["unknown"]),
        "",
        "## Settings",
        "```json",
        json.dumps(record.settings, indent=2, sort_keys=True),
        "```",
    ]
    return "\n".join(lines) + "\n"


def _stage(outcome: StageOutcome) -> list[str]:
    left_out = ", ".join(f"{count} {reason}" for reason, count in outcome.rejects.items())
    last = ", ".join(f"{name} {outcome.last[name]:.4g}" for name in _SHOWN if name in outcome.last)
    return [
        f"- {_STAGES[outcome.stage]}: {outcome.steps} steps over {outcome.rows} rows"
        + (f" (left out: {left_out})" if left_out else ""),
        f"  - last step: {last}",
    ]


def _table(head: tuple[str, str], rows: Mapping[str, str]) -> list[str]:
    return [
        f"| {head[0]} | {head[1]} |",
        "|---|---|",
        *(f"| {name} | `{value}` |" for name, value in rows.items()),
    ]

"""The README.md of a trained model: where it comes from and what may be done with it.

A run publishes its card with the model, before anybody has scored it; evaluation adds its scores
(`workspace.model_card`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from training.lineage import DOCUMENTS_NAME, NOT_STATED, Sources
from training.run_record import RunRecord
from training.trainers.spec import StageOutcome
from workspace.manifest import code_version, now
from workspace.model_card import code_span, section

_SHOWN = (
    "loss",
    "eval_loss",
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


def render(
    record: RunRecord,
    outcomes: Sequence[StageOutcome],
    *,
    licence: str,
    sources: Sources | None,
) -> str:
    """Markdown with the front matter that model hubs read. `licence`: the base model's."""
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
        f"A domain-specific model made from {code_span(record.base_model)}.",
        "",
        "## Training",
        *(line for outcome in outcomes for line in _stage(outcome)),
        *_placement(record),
        "",
        "## Scores",
        section({}),
        "",
        "## Lineage",
        *_lineage(record, sources),
        "",
        "## Licences",
        f"Base model: {_text(licence)}.",
        *_licences(sources),
        "",
        "## Settings",
        "```json",
        json.dumps(record.settings, indent=2, sort_keys=True),
        "```",
        "",
        f"Card written {now()} by code {code_span(code_version())}.",
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


def _placement(record: RunRecord) -> list[str]:
    """Where the run began; what it learned does not depend on it but for rounding."""
    placed = record.placement
    if placed is None:
        return []
    devices = f"{placed.gpus_per_node} × {_text(placed.gpu)}" if placed.gpu else "CPUs"
    every = placed.checkpoint_every_steps
    rows = [
        ("launcher", placed.launcher),
        ("nodes", str(placed.nodes)),
        ("ranks on a node", f"{placed.processes_per_node}, on {devices}"),
        *((f"layout of {stage}", layout.label) for stage, layout in placed.layouts.items()),
        (
            "checkpoints",
            f"{f'every {every} steps' if every else 'as often as their measured time advises'}, "
            f"the newest {placed.keep_checkpoints} kept",
        ),
    ]
    return ["", *_table(("where it began", ""), rows)]


def _lineage(record: RunRecord, sources: Sources | None) -> list[str]:
    keys = [(_text(name.replace("_", " ")), code_span(key)) for name, key in record.lineage.items()]
    lines = _table(("what", "key or version"), [*keys, ("run", code_span(record.key))])
    if sources is None:
        return [*lines, "", "The documents were not listed when this run began."]
    manifest = code_span(sources.dataset_manifest)
    lines += ["", f"The data set's `manifest.json` has the SHA-256 {manifest}."]
    traced = sources.rows - sources.untraced_rows
    if traced:
        lines.append(
            f"Its {traced:,} rows that this run was given were made of {sources.documents:,} "
            f"documents, which [`{DOCUMENTS_NAME}`]({DOCUMENTS_NAME}) lists with their place, "
            "their licence and their part."
        )
    if sources.untraced_rows:
        lines.append(f"{sources.untraced_rows:,} rows lead to no document: made elsewhere.")
    if sources.corpus_changed:
        lines.append("The corpus had been built anew when the run began: places are not known.")
    return lines


def _licences(sources: Sources | None) -> list[str]:
    if sources is None or not sources.licences:
        return ["Training rows: unknown."]
    tokens = sum(share.tokens for share in sources.licences.values())
    rows = sum(share.rows for share in sources.licences.values())
    lines = [
        "",
        *_table(
            (
                "licence of the sources",
                "rows",
                "tokens",
                f"share of {'tokens' if tokens else 'rows'}",
            ),
            (
                (
                    _text(name),
                    f"{part.rows:,}",
                    f"{part.tokens:,}",
                    f"{100 * (part.tokens / tokens if tokens else part.rows / rows):.1f} %",
                )
                for name, part in sources.licences.items()
            ),
        ),
    ]
    if NOT_STATED in sources.licences:
        lines += ["", "A document that states no licence may not be free to use: ask its owner."]
    return lines


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]


def _text(value: str) -> str:
    """Somebody else's words inside a line or a cell of Markdown."""
    for char, written in (("\\", "\\\\"), ("|", "\\|"), ("<", "&lt;"), ("`", "\\`"), ("[", "\\[")):
        value = value.replace(char, written)
    return " ".join(value.split())

"""The README.md of a trained model: where it comes from and what may be done with it.

    python -m training.model_card WORKSPACE/runs/RUN      # today's card, scores included

A run publishes its card with the model, before anybody has scored it; the command prints the same
card with the scores that the model registry has by now.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from training.base_model import model_licence
from training.lineage import DOCUMENTS_NAME, NOT_STATED, Sources, read_sources
from training.run_record import RunFolder, RunRecord
from training.trainers.spec import StageOutcome
from workspace import registry
from workspace.errors import DsmError, UserError
from workspace.manifest import code_version, now
from workspace.paths import Workspace

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


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.model_card", description="Print the card of a run's model."
    )
    parser.add_argument("run", type=Path, help="WORKSPACE/runs/RUN")
    options = parser.parse_args(arguments)
    try:
        sys.stdout.write(card_of(options.run))
    except DsmError as error:
        print(f"model_card: {error}", file=sys.stderr)
        return 1
    return 0


def card_of(run: Path) -> str:
    """The card of a finished run. Raises `UserError` when it is none."""
    folder = RunFolder(run.resolve())
    record = folder.read_record()
    outcomes = [folder.stage(name).outcome() for name in record.stages] if record else []
    if record is None or None in outcomes:
        raise UserError(f"{run} is not the folder of a finished run")
    return render(
        record,
        [outcome for outcome in outcomes if outcome is not None],
        licence=model_licence(folder.final),
        sources=read_sources(folder),
        scores=registered_scores(Workspace(folder.root.parent.parent), record.run),
    )


def registered_scores(workspace: Workspace, run: str) -> dict[str, float]:
    """What the registry knows of the models of `run`, by benchmark metric."""
    found: dict[str, float] = {}
    for path in sorted(workspace.models.glob("*.json")):
        for version in registry.versions(workspace, path.stem):
            if version.run == run:
                found |= version.scores
    return found


def render(
    record: RunRecord,
    outcomes: Sequence[StageOutcome],
    *,
    licence: str,
    sources: Sources | None,
    scores: Mapping[str, float],
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
        f"A domain-specific model made from {_code(record.base_model)}.",
        "",
        "## Training",
        *(line for outcome in outcomes for line in _stage(outcome)),
        "",
        "## Scores",
        *_scores(scores),
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
        f"Card written {now()} by code {_code(code_version())}.",
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


def _scores(scores: Mapping[str, float]) -> list[str]:
    if not scores:
        return ["None yet when this card was written; `python -m training.model_card` prints more."]
    return _table(
        ("benchmark and metric", "score"),
        ((_code(name), f"{value:.4f}") for name, value in sorted(scores.items())),
    )


def _lineage(record: RunRecord, sources: Sources | None) -> list[str]:
    keys = [(_text(name.replace("_", " ")), _code(key)) for name, key in record.lineage.items()]
    lines = _table(("what", "key or version"), [*keys, ("run", _code(record.key))])
    if sources is None:
        return [*lines, "", "The documents were not listed when this run began."]
    manifest = _code(sources.dataset_manifest)
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


def _code(value: str) -> str:
    return "`" + " ".join(value.replace("`", "'").replace("|", "\\|").split()) + "`"


if __name__ == "__main__":
    sys.exit(main())

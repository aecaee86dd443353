"""The scores on a trained model's card: `final/README.md` of the run that made it.

    write_scores(workspace, version)         # after `registry.record_scores`

Training publishes the card (`training.model_card`) with an empty section between two marks; this
fills it from the registry, and the `model-index` of the front matter, which model hubs read. All
else in the card stays as it is, the same scores leave it untouched, and only the folder of a run of
this workspace is ever written to.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from workspace.errors import UserError
from workspace.locking import stage_lock
from workspace.manifest import read_manifest, replace_file
from workspace.paths import Workspace
from workspace.registry import ModelVersion, Score, versions

CARD_NAME: Final = "README.md"
_BEGIN: Final = "<!-- scores: begin, written anew by every evaluation -->"
_END: Final = "<!-- scores: end -->"
_NONE: Final = "None yet: `python -m flows.score` adds them."


def section(scores: Mapping[str, Score]) -> str:
    """The marked part of the card, in Markdown; `scores` by `<benchmark>/<metric>`."""
    return "\n".join([_BEGIN, *(_table(scores) if scores else [_NONE]), _END])


def code_span(value: str) -> str:
    """Somebody else's word as code inside a line or a cell of Markdown."""
    return "`" + " ".join(value.replace("`", "'").replace("|", "\\|").split()) + "`"


def write_scores(workspace: Workspace, model: ModelVersion) -> bool:
    """Show what the registry has of `model` on its card; whether there is a card to show it on.

    There is none where the version's folder was not published by a run of this workspace. Raises
    `UserError` for a card whose front matter is broken.
    """
    folder = (workspace.root / model.path).resolve()
    if not folder.is_relative_to(workspace.runs.resolve()):
        return False
    with stage_lock(workspace, "models", wait_s=30):
        manifest = read_manifest(folder)
        card = folder / CARD_NAME
        if manifest is None or manifest.stage != "run" or not card.is_file():
            return False
        [current] = [v for v in versions(workspace, model.name) if v.version == model.version]
        text = _with_scores(card, model.run, current.scores)
        replace_file(folder, CARD_NAME, text)
    return True


def _with_scores(card: Path, name: str, scores: Mapping[str, Score]) -> str:
    before = card.read_text(encoding="utf-8")
    head, begin, rest = before.partition(_BEGIN)
    _, end, tail = rest.partition(_END)
    if begin and end:
        text = head + section(scores) + tail
    else:  # somebody took the marks out
        text = f"{before.rstrip()}\n\n## Scores\n{section(scores)}\n"
    return _with_index(card, text, name, scores)


def _with_index(card: Path, text: str, name: str, scores: Mapping[str, Score]) -> str:
    """`text` with the scores as `model-index` in its front matter."""
    from huggingface_hub import ModelCard

    try:
        parsed = ModelCard(text, ignore_metadata_errors=True)
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(
            f"{card}: mend its front matter, which is no YAML of a model card: {error}"
        ) from error
    data: Any = parsed.data  # typed as the base of cards of all kinds
    data.model_name = name
    data.eval_results = [_eval_result(key, score) for key, score in sorted(scores.items())]
    return str(parsed)


def _eval_result(key: str, score: Score) -> Any:
    from huggingface_hub import EvalResult

    benchmark, _, metric = key.rpartition("/")
    details = score.model_dump(
        mode="json", include={"low", "high", "problems", "evaluation", "date"}, exclude_none=True
    )
    return EvalResult(
        task_type="text-generation",
        dataset_type=benchmark,
        dataset_name=score.title or benchmark,
        dataset_revision=score.data_hash or None,
        metric_type=metric,
        metric_value=score.value,
        metric_args=details or None,
    )


def _table(scores: Mapping[str, Score]) -> list[str]:
    head = ("benchmark", "metric", "score", "95 % interval", "problems", "date", "evaluation")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for key, score in sorted(scores.items()):
        benchmark, _, metric = key.rpartition("/")
        interval = "" if score.low is None else f"{score.low:.4f} to {score.high:.4f}"
        cells = (code_span(benchmark), code_span(metric), f"{score.value:.4f}", interval)
        evaluation = code_span(score.evaluation) if score.evaluation else ""
        counted = "" if score.problems is None else f"{score.problems:,}"
        lines.append("| " + " | ".join((*cells, counted, score.date[:10], evaluation)) + " |")
    measured = dict.fromkeys(_measured(key, score) for key, score in sorted(scores.items()))
    return [*lines, "", *(f"- {line}" for line in measured if line)]


def _measured(key: str, score: Score) -> str:
    """What a score is comparable with, in words; "" when the registry does not know."""
    if not score.data_hash:
        return ""
    tools = (f"{name} {version}" for name, version in sorted(score.tool_versions.items()))
    parts = (f"data {score.data_hash[:12]}", f"grader {score.grader_version}", *tools)
    return f"{code_span(key.rpartition('/')[0])}: {', '.join(parts)}"

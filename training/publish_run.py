"""A run whose stages are done -> `runs/<run>/final/`: weights, tokenizer, card, list of documents,
and the manifest last.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training import model_card
from training.base_model import ORIGIN_FILE, model_licence
from training.lineage import DOCUMENTS_NAME, documents_file, read_sources
from training.metrics import read_metrics
from training.run_record import RunFolder, RunRecord, link_or_copy
from training.trainers.save_interval import SAVE_INTERVAL_NAME
from training.trainers.spec import StageOutcome
from workspace import publish
from workspace.manifest import Manifest, code_version, describe_file, now, write_manifest
from workspace.model_card import CARD_NAME

STAGE = "run"


def publish_run(
    folder: RunFolder,
    record: RunRecord,
    outcomes: Sequence[StageOutcome],
    *,
    base: Path,
    fingerprint: str,
    seconds: float,
) -> Manifest:
    """Publish the last stage's model, then drop the checkpoints. `base` is the base model."""
    card = model_card.render(
        record, outcomes, licence=model_licence(base), sources=read_sources(folder)
    )
    with publish.atomic_directory(folder.final) as final:
        for path in sorted(folder.stage(record.stages[-1]).model.iterdir()):
            link_or_copy(path, final / path.name)
        if (base / ORIGIN_FILE).exists():  # licence and source, for runs that start from this one
            link_or_copy(base / ORIGIN_FILE, final / ORIGIN_FILE)
        if documents_file(folder).exists():
            link_or_copy(documents_file(folder), final / DOCUMENTS_NAME)
        (final / CARD_NAME).write_text(card, encoding="utf-8")
        manifest = Manifest(
            stage=STAGE,
            key=record.key,
            fingerprint=fingerprint,
            settings=record.settings,
            inputs={name: record.lineage[name] for name in ("dataset", "base_model")},
            code_version=code_version(),
            counts_in={f"{outcome.stage}_rows": outcome.rows for outcome in outcomes},
            counts_out={f"{outcome.stage}_steps": outcome.steps for outcome in outcomes},
            rejects=_rejects(outcomes),
            notes={outcome.stage: _figures(folder, outcome) for outcome in outcomes},
            seconds=round(seconds, 3),
            created=now(),
            files=[describe_file(final, path) for path in sorted(final.iterdir())],
        )
        write_manifest(final, manifest)
    for stage in record.stages:
        folder.stage(stage).remove_checkpoints()
    return manifest


def _rejects(outcomes: Sequence[StageOutcome]) -> dict[str, int]:
    return {
        f"{outcome.stage}:{reason}": count
        for outcome in outcomes
        for reason, count in outcome.rejects.items()
    }


def _figures(folder: RunFolder, outcome: StageOutcome) -> dict[str, Any]:
    steps = read_metrics(folder.root, outcome.stage)
    seconds = sum(step.seconds for step in steps)
    tokens = sum(step.tokens for step in steps)
    return {
        "attempts": folder.stage(outcome.stage).latest_attempt(),
        "tokens": tokens,
        "step_seconds": round(seconds, 3),
        "tokens_per_s": round(tokens / seconds, 1) if seconds else 0.0,
        "first_loss": steps[0].loss if steps else None,
        "last": outcome.last,
        "ended_by": outcome.ended_by,
        **({"save_interval": interval} if (interval := _save_interval(folder, outcome)) else {}),
    }


def _save_interval(folder: RunFolder, outcome: StageOutcome) -> dict[str, Any]:
    """What the steps between saves were chosen from; empty where they were given."""
    record = folder.stage(outcome.stage).root / SAVE_INTERVAL_NAME
    if not record.exists():
        return {}
    found: dict[str, Any] = json.loads(record.read_text(encoding="utf-8"))
    return found

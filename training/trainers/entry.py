"""The frame of every trainer process: read the spec, train, turn the outcome into an exit code.

0 done, 75 stopped with a checkpoint, 93 the input or the settings are at fault (the reason is in
the attempt's `error.json`), anything else: try again from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from training import checkpoints, phases
from training.cluster.heartbeat import of_this_rank
from training.cluster.job import EXIT_DONE, EXIT_NEVER_AGAIN, EXIT_RESUME
from training.ledger import Origin
from training.trainers.callbacks import Progress, wait_for_all_ranks
from training.trainers.model_io import BEST_NAME, trained_model
from training.trainers.ranks import joined
from training.trainers.reporting import prepare_reporters
from training.trainers.resuming import newest_intact
from training.trainers.spec import StageOutcome, TrainSpec
from training.trainers.stopping import StopRequest
from training.trainers.trl_ledger import Fed
from workspace import disk_faults, publish
from workspace.errors import UserError

ERROR_NAME = "error.json"

Train = Callable[[TrainSpec, StopRequest], StageOutcome | None]


def main(train: Train) -> int:
    """Run `train` on the spec named on the command line. It returns None when it was stopped."""
    spec = TrainSpec.model_validate_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    stop = StopRequest(spec.attempt_dir)
    stop.listen()
    of_this_rank()  # says that setting up has begun
    if spec.result_file.exists():
        return EXIT_DONE
    try:
        outcome = train(spec, stop)
    except UserError as error:
        return _refuse(spec, error)
    except OSError as error:
        fault = disk_faults.explain(error, spec.stage_dir, checkpoints.AGAIN)
        if fault is None:
            raise
        return _refuse(spec, fault)
    return EXIT_RESUME if outcome is None else EXIT_DONE


def _refuse(spec: TrainSpec, error: UserError) -> int:
    print(f"error: {error}", file=sys.stderr, flush=True)
    # A disk that is full takes no message either; it is in the log.
    with contextlib.suppress(OSError):
        publish.write_json(spec.attempt_dir / ERROR_NAME, {"message": str(error)})
    return EXIT_NEVER_AGAIN


def run_trainer(spec: TrainSpec, trainer: Any, fed: Fed) -> None:
    """Let a Hugging Face trainer train from the newest intact checkpoint. Call on every rank."""
    found = newest_intact(spec, joined())
    fed.resumed_from = Origin(found.writer, found.step) if found else None
    trainer.train(resume_from_checkpoint=str(found.path) if found else None)


def publish_model(spec: TrainSpec, model: Any, tokenizer: Any, outcome: StageOutcome) -> None:
    """Write the trained model and, last of all, `result.json`. Call on rank 0 alone.

    Raises `FencedError` when another attempt or generation does this work by now.
    """
    checkpoints.require_current(spec.attempt_dir.parent, spec.attempt)
    with (
        phases.timed(spec.attempt_dir, "publish"),
        publish.atomic_directory(spec.model_dir) as folder,
    ):
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        for path in folder.iterdir():
            path.chmod(0o644)  # transformers writes weights readable by their owner alone
    publish.write_text(spec.result_file, outcome.model_dump_json(indent=2) + "\n")
    shutil.rmtree(spec.stage_dir / BEST_NAME, ignore_errors=True)


def finish(
    spec: TrainSpec,
    progress: Progress,
    trainer: Any,
    tokenizer: Any,
    *,
    rows: int,
    rejects: dict[str, int],
) -> StageOutcome | None:
    """Publish what a Hugging Face trainer trained; None when it was stopped. Call on every rank."""
    if progress.stopped:
        wait_for_all_ranks()
        return None
    outcome = StageOutcome(
        stage=spec.stage,
        attempt=spec.attempt,
        steps=trainer.state.global_step,
        rows=rows,
        rejects=rejects,
        tokens=progress.tokens,
        last=progress.last,
        ended_by=progress.ended_by,
    )
    if trainer.is_world_process_zero():
        publish_model(spec, trained_model(spec, trainer.model), tokenizer, outcome)
    wait_for_all_ranks()
    return outcome


def common_arguments(spec: TrainSpec) -> dict[str, Any]:
    """Arguments that the Hugging Face trainers share."""
    prepare_reporters(spec.report_to, spec.attempt_dir)
    return {
        "output_dir": str(checkpoints.unfinished_folder(spec.checkpoints, spec.attempt)),
        "use_cpu": not spec.use_gpu,
        "ddp_backend": "gloo" if world_size() > 1 and not spec.use_gpu else None,
        "ddp_find_unused_parameters": False if world_size() > 1 else None,
        "bf16": spec.precision == "bf16",
        "gradient_checkpointing": spec.layout.activation_checkpointing != "none",
        "seed": spec.seed,
        "data_seed": spec.seed,
        "save_strategy": "no",  # a callback says when
        # Ours runs after a save is complete; the trainer's would delete the last good one before.
        "save_total_limit": None,
        "eval_strategy": "steps" if spec.evaluates else "no",
        "eval_steps": spec.evaluation.every_steps if spec.evaluates else None,
        "prediction_loss_only": True,
        "logging_strategy": "steps",
        "logging_steps": 1,
        # The default shows the mean of earlier steps in place of a loss that is not a number.
        "logging_nan_inf_filter": False,
        "report_to": list(spec.report_to),
        "disable_tqdm": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": spec.use_gpu,
        "remove_unused_columns": False,
    }


def rows_per_rank(rows: int, setting: str, ranks: int | None = None) -> int:
    """A rank's share of a step's `rows`. Raises `UserError` naming the setting if it has none."""
    ranks = ranks or world_size()
    if rows % ranks:
        raise UserError(
            f"{setting} is {rows}, which {ranks} ranks cannot share evenly; choose a multiple"
        )
    return rows // ranks


def world_size() -> int:
    """Ranks of this job, as torchrun says."""
    return int(os.environ.get("WORLD_SIZE", "1"))

"""What a row of published runs leaves open: the plainest setting that fits the GPU's memory.

Optimizer, activation checkpointing and micro-batch, in this order from the plainest to the most
saving. A run that ran did fit, so that memory is estimated without a margin and with little of it
in pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from training.planner.calibration import Calibration
from training.planner.layout import Checkpointing, Job, Layout
from training.planner.memory import peak_memory
from training.planner.software import habits_of

if TYPE_CHECKING:
    from training.planner.published import Run

# Not the shipped constants, which are fitted on published runs.
_LEANEST: Final = Calibration(memory_margin=1.0, fragmentation=1.04, exchange_gib=0.0)


def fill_in(run: Run, row: Mapping[str, str], assumed: list[str]) -> tuple[Job, Layout]:
    """The job and layout of a run, completed; what was chosen is added to `assumed`."""
    job, layout = run.job, run.layout
    optimizers, checkpointings = [job.optimizer], [layout.checkpointing]
    if not row["activation_ckpt"]:
        order: tuple[Checkpointing, ...] = ("none", "selective", "alternate", "full")
        habits = habits_of(run.source)
        if layout.checkpointing != "alternate":
            order = ("none", "selective", "full") if habits.recomputes_some else ("none", "full")
        end = None if habits.recomputes_all else -1
        checkpointings = list(order[order.index(layout.checkpointing) : end])
    if layout.gpus == 1 and job.method == "full":
        optimizers += ["adamw_bf16", "adamw_8bit", "paged_8bit"]
    micros = [layout.micro_batch]
    if not row["micro_batch"] and row["global_batch"]:
        # What the planner would take: larger pieces while they divide the batch and fit.
        share = max(1, job.global_batch // layout.dp)
        micros = [size for size in (4, 2, 1) if share % size == 0 and share >= size * layout.pp]
    tried = job, layout
    for optimizer in optimizers:
        for kept in checkpointings:
            for micro in micros or [1]:
                tried = (
                    replace(job, optimizer=optimizer),
                    replace(layout, checkpointing=kept, micro_batch=micro),
                )
                memory = peak_memory(run.shape, *tried, _LEANEST)
                if memory.total <= run.machine.memory_gib:
                    assumed += _differences(run, *tried)
                    return tried
    # Nothing fits by the estimate although the run ran: the most saving of what was tried.
    assumed += _differences(run, *tried)
    return tried


def _differences(run: Run, job: Job, layout: Layout) -> list[str]:
    found = []
    if job.optimizer != run.job.optimizer:
        found.append(f"optimizer {job.optimizer}")
    if layout.checkpointing != run.layout.checkpointing:
        found.append(f"activation checkpointing {layout.checkpointing}")
    if layout.micro_batch != run.layout.micro_batch:
        found.append(f"micro-batch {layout.micro_batch}")
    return found

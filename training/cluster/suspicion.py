"""Whom the loss of nodes points at: pure functions of what a job's coordinator saw of its agents.

In: how agents were lost (`Loss`), or which of them never came. Out: a `Cause` and the nodes under
suspicion, for `training.cluster.recovery`.

- Only Slurm's own word is hard evidence (`NODE_LOST`). An agent that is silent, or whose connection
  was closed, may have been killed on a healthy node: soft (`NODE_SILENT`). So is a node's own word
  that it is not fit (`UNFIT`): it looks again before the next job.
- What befalls most nodes at once is not their fault: a wrong image, a wrong path, a dead file
  system, the network of the coordinator's own node. Then nobody is suspected but, where all other
  nodes fell silent together, that node, softly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from training.cluster.recovery import Cause

WHERE_TO_LOOK: Final = "look at job.log, slurm.python, slurm.container and the attempt's folder"


class Loss(StrEnum):
    """How an agent was lost."""

    TAKEN = "Slurm took the node out of the job"
    CLOSED = "its connection was closed"
    SILENT = "it said nothing"


class Suspicion(NamedTuple):
    """What ended, and the nodes that it points at; `why` is for people."""

    cause: Cause
    nodes: tuple[str, ...]
    why: str


def together(gone: int, of: int) -> bool:
    """Whether so many went at once that it was none of them."""
    return gone >= 2 and 2 * gone > of


def of_losses(lost: Mapping[str, Loss], others: Collection[str], own: str) -> Suspicion:
    """Of the agents `lost` at about the same time. `others`: all nodes that had an agent before,
    without the coordinator's `own`."""
    taken = tuple(node for node, how in lost.items() if how is Loss.TAKEN)
    if taken:
        names = ", ".join(taken)
        return Suspicion(
            Cause.NODE_LOST, taken, f"no word from {names}: Slurm took it out of the job"
        )
    names = ", ".join(lost)
    away = [node for node in lost if node != own]
    if not together(len(away), len(others)):
        return Suspicion(Cause.NODE_SILENT, tuple(lost), f"no word from {names}")
    if all(lost[node] is Loss.SILENT for node in away) and own not in lost:
        why = f"no word from {names} at once: most likely the network of {own}"
        return Suspicion(Cause.NODE_SILENT, (own,), why)
    return Suspicion(
        Cause.NODE_SILENT,
        (),
        f"the agents of {names} ended at once, most likely their step; look at job.log",
    )


def of_absence(
    missing: Sequence[str], unfit: Mapping[str, str], of: int, step: str = ""
) -> Suspicion:
    """Of the agents that did not come up, out of `of`: the `missing`, and the `unfit` that said why
    not. `step`: how their srun ended by itself and what it said last, "" while it runs."""
    away = (*missing, *unfit)
    checks = "; ".join(dict.fromkeys(unfit.values()))
    if not together(len(away), of) and unfit:
        return Suspicion(Cause.UNFIT, tuple(unfit), checks)
    said = f"{', '.join(unfit)}: {checks}" if unfit else ""
    if step:
        why = "; ".join(filter(None, (step, said, WHERE_TO_LOOK)))
        return Suspicion(Cause.NOT_STARTED, (), why)
    why = f"no agent came up on {', '.join(missing)}" if missing else ""
    if together(len(away), of):
        why = "; ".join(filter(None, (why, said, WHERE_TO_LOOK)))
        return Suspicion(Cause.NOT_STARTED, (), why)
    return Suspicion(Cause.NODE_SILENT, tuple(missing), why)

"""Whom the evidence points at: pure functions of what a job's coordinator saw of its nodes.

In: how agents were lost (`Loss`), or which of them never came, what passed between pairs of nodes
(`Link`), what nodes found of themselves (`Finding`). Out: a `Cause` and the nodes under suspicion,
for `training.cluster.recovery`.

- Only Slurm's own word is hard evidence (`NODE_LOST`). An agent that is silent, or whose connection
  was closed, may have been killed on a healthy node: soft (`NODE_SILENT`). So is a node's own word
  that it is not fit (`UNFIT`): it looks again before the next job.
- A bad link tells nothing of which of its two nodes is to blame. One whose links with two others
  are bad is suspected, and they are not, as long as theirs with third ones are good.
- What a node's checks find while it trains ends nothing by itself, unless its results cannot be
  trusted. When the ranks fail of something else, it is the first suspect.
- What befalls most nodes at once is not their fault: a wrong image, a wrong path, a dead file
  system, the network of the coordinator's own node. Then nobody is suspected but, where all other
  nodes fell silent together, that node, softly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from statistics import median
from typing import Final, NamedTuple

from training.cluster.health.config import LinkLimits
from training.cluster.health.results import Severity
from training.cluster.recovery import Cause

WHERE_TO_LOOK: Final = "look at job.log, slurm.python, slurm.container and the attempt's folder"


class Loss(StrEnum):
    """How an agent was lost."""

    TAKEN = "Slurm took the node out of the job"
    CLOSED = "its connection was closed"
    SILENT = "it said nothing"


class Link(NamedTuple):
    """Two nodes and what passed between them; `gbytes` (GB/s) None: nothing, and `why`."""

    nodes: tuple[str, str]
    gbytes: float | None
    why: str = ""


class Finding(NamedTuple):
    """What a node's checks say of it while it trains; `why` is for people."""

    severity: Severity
    why: str


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


def bad_links(links: Sequence[Link], limits: LinkLimits) -> list[Link]:
    """The dead ones, and those slower than `limits` allow.

    What is usual is the median of what each node reached with its best partner: a slow node spoils
    its partners' other link only.
    """
    speeds = {node: 0.0 for link in links for node in link.nodes}
    for link in links:
        for node in link.nodes:
            speeds[node] = max(speeds[node], link.gbytes or 0.0)
    usual = median(speeds.values()) if len(speeds) > 2 else 0.0
    least = max(limits.least_gbytes, limits.least_share * usual)
    return [link for link in links if link.gbytes is None or link.gbytes < least]


def of_links(links: Sequence[Link], limits: LinkLimits) -> Suspicion | None:
    """Of what passed between pairs; None where all links are good.

    No nodes: which of a pair is to blame is not known, or it is most of them at once.
    """
    bad = bad_links(links, limits)
    if not bad:
        return None
    dead = [link for link in bad if link.gbytes is None]
    said = "; ".join(_in_words(link) for link in (*dead, *(one for one in bad if one not in dead)))
    for cause, faulty in ((Cause.LINK_DEAD, dead), (Cause.LINK_SLOW, bad)):
        suspects = _without_a_good_link(links, faulty)
        if together(len(suspects), len({node for link in links for node in link.nodes})):
            why = f"{said}; most nodes at once: most likely their network, or a limit of the check"
            return Suspicion(cause, (), why)
        if suspects:
            return Suspicion(cause, suspects, said)
    pairs = "the pair is" if len(bad) == 1 else "only the pairs are"
    why = f"{said}; {pairs} known to be bad, not which of its nodes"
    return Suspicion(Cause.LINK_DEAD if dead else Cause.LINK_SLOW, (), why)


def without_pairs(
    nodes: Sequence[str], pairs: Collection[tuple[str, str]], wanted: int
) -> list[str]:
    """The first `wanted` of `nodes` that hold none of `pairs` whole; [] where that is too few."""
    chosen: list[str] = []
    for node in nodes:
        if not any(node in pair and set(pair) - {node} <= set(chosen) for pair in pairs):
            chosen.append(node)
    return chosen[:wanted] if len(chosen) >= wanted else []


def _without_a_good_link(links: Sequence[Link], faulty: Sequence[Link]) -> tuple[str, ...]:
    """Nodes that met two others at least, and none of them well."""
    nodes = dict.fromkeys(node for link in links for node in link.nodes)
    met = {node: [link for link in links if node in link.nodes] for node in nodes}
    return tuple(
        node for node, own in met.items() if len(own) > 1 and all(link in faulty for link in own)
    )


def _in_words(link: Link) -> str:
    passed = f"nothing passed ({link.why})" if link.gbytes is None else f"{link.gbytes:.3g} GB/s"
    return f"{link.nodes[0]} and {link.nodes[1]}: {passed}"


def of_findings(
    found: Suspicion, findings: Mapping[str, Finding], nodes: Collection[str]
) -> Suspicion:
    """`found` of the end of ranks that ran on `nodes`, in the light of what these nodes' checks
    said meanwhile: one that is not fit any more is suspected before the one whose rank failed."""
    unfit = tuple(
        node for node in nodes if node in findings and findings[node].severity >= Severity.DRAIN
    )
    if found.cause not in _EXPLAINED_BY_HEALTH or not unfit or together(len(unfit), len(nodes)):
        return found
    said = "; ".join(f"{node}: {findings[node].why}" for node in unfit)
    return Suspicion(Cause.UNFIT, unfit, "; ".join(filter(None, (said, found.why))))


# What a sick node does to its ranks, or to those of others.
_EXPLAINED_BY_HEALTH: Final = frozenset(
    {Cause.RANK_FAILED, Cause.RANK_KILLED, Cause.HUNG, Cause.LOST, Cause.STORAGE}
)

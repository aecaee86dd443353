"""Whether the ranks hang, and which of them is the one that the others wait for.

In: what every rank last said (`RankView`, from the node agents), then their stacks. A hang is a
section that takes longer than its limit; in synchronous training all ranks reach theirs at nearly
the same time, because all wait for one. The culprit is looked for in this order: a process that is
stopped or stuck in the kernel; one that is behind the others; one whose stack is not in a
collective operation while others' are; one whose stack differs from the others'. Where none of
this tells them apart nobody is named.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from training.cluster.heartbeat import Section
from workspace.config import StageConfig, setting

# Where Python shows a rank that waits for others: in torch's collectives and the backward pass
# that starts them, in a store, a socket or a lock of the rendezvous.
_WAITING = re.compile(
    r"all_reduce|all_gather|all_to_all|reduce_scatter|broadcast|barrier|monitored_barrier"
    r"|_engine_run_backward|\bwait(_for|_all)?\b|wait_for_all_ranks|recv|_recv|accept|agreed"
    r"|synchronize|isend|irecv",
)


class SectionLimits(StageConfig):
    """Seconds that a rank may spend in one section without a word before it counts as hanging."""

    setup_s: float = setting(
        1800, position=1, gt=0, description="import, load, resume, compile", affects_output=False
    )
    step_s: float = setting(
        900, position=2, gt=0, description="one training step", affects_output=False
    )
    checkpoint_s: float = setting(
        1800, position=3, gt=0, description="one checkpoint", affects_output=False
    )
    evaluation_s: float = setting(
        3600, position=4, gt=0, description="one evaluation", affects_output=False
    )

    def of(self, section: Section) -> float:
        return {
            Section.SETUP: self.setup_s,
            Section.STEP: self.step_s,
            Section.CHECKPOINT: self.checkpoint_s,
            Section.EVALUATION: self.evaluation_s,
        }[section]


@dataclass(frozen=True)
class RankView:
    """What is known of a rank. `age_s`: since its last word; `process_state`: of /proc."""

    rank: int
    node: str
    section: Section
    age_s: float
    step: int
    changes: int
    process_state: str = "S"
    stack: tuple[str, ...] = ()  # innermost function first

    @property
    def waits(self) -> bool:
        """Whether its stack is in an operation that other ranks take part in."""
        return any(_WAITING.search(frame) for frame in self.stack[:3])


def overdue(views: Sequence[RankView], limits: SectionLimits) -> list[RankView]:
    """The ranks whose section takes longer than it may."""
    return [view for view in views if view.age_s > limits.of(view.section)]


def culprits(views: Sequence[RankView]) -> list[RankView]:
    """The ranks that the others wait for; empty when nothing tells them apart."""
    stuck = [view for view in views if view.process_state in "TtDZX"]
    if stuck and len(stuck) < len(views):
        return stuck
    behind = _fewest([(view.step, view.changes) for view in views], views)
    if behind:
        return behind
    known = [view for view in views if view.stack]
    at_work = [view for view in known if not view.waits]
    if at_work and len(at_work) < len(known):
        return at_work
    counts = Counter(view.stack[:1] for view in known)
    rare = [view for view in known if counts[view.stack[:1]] == 1]
    return rare if len(rare) == 1 and len(known) > 2 else []


def describe_hang(view: RankView, limits: SectionLimits) -> str:
    """For example `rank 3 on node2: no word for 62 s in step after step 17 (limit 60 s), stopped;
    stands in read <- __next__ <- train`."""
    words = {"T": ", stopped", "t": ", stopped", "D": ", stuck in the kernel"}
    stands = f"; stands in {' <- '.join(view.stack[:5])}" if view.stack else ""
    return (
        f"rank {view.rank} on {view.node}: no word for {view.age_s:.0f} s in "
        f"{view.section.name.lower()} after step {view.step} (limit "
        f"{limits.of(view.section):g} s){words.get(view.process_state, '')}{stands}"
    )


def _fewest(places: Sequence[tuple[int, int]], views: Sequence[RankView]) -> list[RankView]:
    least = min(places)
    behind = [view for view, place in zip(views, places, strict=True) if place == least]
    return behind if len(behind) < len(views) else []

"""Nodes that training jobs of this workspace stay away from, and for how long.

Truth is a log of offences, `<workspace>/bad-nodes.jsonl`, to which every supervisor appends; what
follows from it is computed:

    avoided(offences, now) -> {"node7": 1767225600.0}      until when, in seconds of the epoch

An offence keeps a node out for a day; silence, a check that the node itself failed and dead links
for an hour: its agent may have been killed, the checks are made again before it trains. Each
earlier one doubles that, up to 30 days, and counts half as much for every week that has passed: a
node that fails again and again (a lemon) stays out for longer, one bad day is forgotten. A run
measures its own nodes by the same rule (`training.cluster.recovery`). After a repair a person ends
it at once:

    python -m training.cluster.blacklist --workspace DIR [--forgive node7]

Not covered: draining nodes in Slurm, which is its operators' decision.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from workspace import publish
from workspace.paths import Workspace

DAY_S = 86_400.0
HOUR_S = 3600.0
# Causes of `training.cluster.recovery` that are weak evidence against a node.
SOFT = frozenset({"node_silent", "node_unfit", "link_dead"})


class Offence(NamedTuple):
    """A line of the log. `cause` "forgiven" clears what came before it."""

    time: float
    node: str
    cause: str
    run: str = ""
    attempt: int = 0
    generation: int = 0
    detail: str = ""


class Terms(NamedTuple):
    """How long a node stays out."""

    first_s: float = DAY_S
    soft_s: float = HOUR_S
    longest_s: float = 30 * DAY_S
    half_life_s: float = 7 * DAY_S


FORGIVEN = "forgiven"


def score(offences: Iterable[Offence], node: str, now: float, terms: Terms = Terms()) -> float:  # noqa: B008
    """Offences of `node` up to `now`, each halved for every half-life since."""
    counted = _since_forgiven(offences, node, now)
    return sum(float(0.5 ** ((now - offence.time) / terms.half_life_s)) for offence in counted)


def avoided(
    offences: Iterable[Offence],
    now: float,
    terms: Terms = Terms(),  # noqa: B008
) -> dict[str, float]:
    """Nodes to stay away from at `now`, and until when."""
    known = list(offences)
    found = {}
    for node in sorted({offence.node for offence in known}):
        until = max(
            (
                offence.time + _sentence(known, offence, terms)
                for offence in _since_forgiven(known, node, now)
            ),
            default=0.0,
        )
        if until > now:
            found[node] = until
    return found


def bearable(avoided: Mapping[str, float], nodes: frozenset[str], wanted: int) -> tuple[str, ...]:
    """Those of `avoided` (node -> until when) that a job of `wanted` nodes can do without, out of
    the `nodes` that are up. Where too few would be left, those that come back soonest are taken."""
    present = sorted(avoided.keys() & nodes, key=lambda node: (-avoided[node], node))
    can_spare = max(0, len(nodes) - wanted)
    return tuple(sorted({*(avoided.keys() - nodes), *present[:can_spare]}))


def _sentence(known: list[Offence], offence: Offence, terms: Terms) -> float:
    earlier = score(known, offence.node, offence.time, terms) - 1.0
    first_s = terms.soft_s if offence.cause in SOFT else terms.first_s
    return float(min(terms.longest_s, first_s * 2.0 ** max(0.0, earlier)))


def _since_forgiven(offences: Iterable[Offence], node: str, now: float) -> list[Offence]:
    counted: list[Offence] = []
    for offence in sorted(offences):
        if offence.node == node and offence.time <= now:
            counted = [] if offence.cause == FORGIVEN else [*counted, offence]
    return counted


class Blacklist:
    """The log on disk. Several supervisors may use it at once."""

    def __init__(self, path: Path, terms: Terms = Terms()) -> None:  # noqa: B008
        self.path = path
        self.terms = terms

    def offences(self) -> list[Offence]:
        """All lines that are whole."""
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        return [offence for line in lines if (offence := _parse(line))]

    def avoided(self, now: float) -> dict[str, float]:
        """Nodes to stay away from at `now`, and until when."""
        return avoided(self.offences(), now, self.terms)

    def add(self, offence: Offence) -> bool:
        """Record it, unless it is known (a supervisor may die right after); whether it was new."""
        known = {_identity(seen) for seen in self.offences()}
        if _identity(offence) in known:
            return False
        self.path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps(offence._asdict(), ensure_ascii=False) + "\n"
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        with publish.naming(self.path):
            try:
                os.write(descriptor, line.encode("utf-8"))
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        return True

    def forgive(self, node: str, now: float) -> None:
        """Let jobs run on `node` again."""
        self.add(Offence(now, node, FORGIVEN))


def _identity(offence: Offence) -> tuple[object, ...]:
    if offence.run:
        return (offence.run, offence.attempt, offence.generation, offence.node)
    return (offence.time, offence.node, offence.cause)


def _parse(line: str) -> Offence | None:
    # A machine that lost power may leave a torn or empty block in an appended file.
    try:
        return Offence(**json.loads(line))
    except (ValueError, TypeError):
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Show who is left out, and until when; forgive."""
    parser = argparse.ArgumentParser(prog="blacklist", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--forgive", action="append", default=[], metavar="NODE")
    chosen = parser.parse_args(arguments)
    blacklist = Blacklist(Workspace(chosen.workspace).bad_nodes)
    for node in chosen.forgive:
        blacklist.forgive(node, time.time())
    for node, until in blacklist.avoided(time.time()).items():
        last = max(offence for offence in blacklist.offences() if offence.node == node)
        clock = time.strftime("%F %R", time.localtime(until))
        print(f"{node} until {clock}: {last.cause} in {last.run} {last.detail}".rstrip())
    return 0


if __name__ == "__main__":
    sys.exit(main())

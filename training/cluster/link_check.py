"""The links between a job's nodes, each node with two others, before its ranks start.

    measured = LinkCheck(fleet, limits, gpu=True, first_port=20_000).run(nodes)

The coordinator has the node agents of a pair start `training.cluster.health.pair`; nobody waits for
longer than `limits.timeout_s` a round, of which there are two, with an odd number of nodes three
(each node sits out at most one), with two nodes one. Whom the outcome points at is
`training.cluster.suspicion.of_links`' to say. What GPUs reached is kept for the planner.

Not covered: the links inside a node, more than one GPU of a node at a time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

from training.cluster.agent_link import LINK, Message
from training.cluster.fleet import Fleet
from training.cluster.health.bandwidth import document, rounds
from training.cluster.health.config import LinkLimits
from training.cluster.suspicion import Link, Suspicion
from workspace import publish

LINKS_NAME: Final = "links.json"  # in the attempt's folder
_ANSWER_S: Final = 10.0  # for agents to answer, beyond the time of the exchange


class Measured(NamedTuple):
    """What was found. `unseen`: pairs that could not be tried, in words."""

    links: tuple[Link, ...]
    unseen: tuple[str, ...]
    devices: tuple[str, ...]  # GPUs as the driver calls them
    terminated: bool = False  # Slurm told the agents to end meanwhile

    def in_words(self) -> str:
        """For example `6 pairs, 20.1 to 22.4 GB/s`."""
        speeds = [link.gbytes for link in self.links if link.gbytes is not None]
        reached = f", {min(speeds):.3g} to {max(speeds):.3g} GB/s" if speeds else ""
        silent = f", {len(self.links) - len(speeds)} dead" if len(speeds) < len(self.links) else ""
        unseen = f"; not tried: {'; '.join(self.unseen)}" if self.unseen else ""
        pairs = "1 pair" if len(self.links) == 1 else f"{len(self.links)} pairs"
        return f"{pairs}{reached}{silent}{unseen}"

    def keep(self, folder: Path, kept: Path | None, suspected: Suspicion | None) -> None:
        """Write the measurement into the attempt's folder, and where GPUs were measured into that
        of the planner, by the number of nodes."""
        pairs = [(*link.nodes, link.gbytes) for link in self.links if link.gbytes is not None]
        if not pairs:
            return
        found = document(self.devices, pairs, suspected.nodes if suspected else ())
        publish.write_json(folder / LINKS_NAME, found)
        if self.devices and kept is not None:
            publish.write_json(kept / f"{len(found['nodes'])}-nodes.json", found)


def pairs_to_meet(nodes: Sequence[str]) -> list[list[tuple[str, str]]]:
    """Rounds in which each node meets at least two others (one, where there is but one)."""
    wanted = 2 if len(nodes) % 2 == 0 else 3
    met = islice(rounds(len(nodes)), wanted)
    return [[(nodes[low], nodes[high]) for low, high in pairs] for pairs in met]


class LinkCheck:
    """Runs once, over the agents of `fleet`."""

    def __init__(self, fleet: Fleet, limits: LinkLimits, *, gpu: bool, first_port: int) -> None:
        self._fleet = fleet
        self._limits = limits
        self._gpu = gpu
        self._first_port = first_port
        self._ports: dict[str, int] = {}
        self._answers: dict[str, Message] = {}
        self._round = 0
        self._terminated = False

    def run(self, nodes: Sequence[str]) -> Measured:
        links: list[Link] = []
        unseen: list[str] = []
        devices: set[str] = set()
        for pairs in pairs_to_meet(nodes):
            if self._terminated:
                break
            self._meet(pairs)
            devices |= {answer.get("device", "") for answer in self._answers.values()}
            for pair in pairs:
                found = self._found(pair)
                if isinstance(found, Link):
                    links.append(found)
                else:
                    unseen.append(found)
        self._fleet.send(nodes, order=LINK, round=0, task=None)
        return Measured(
            tuple(links), tuple(unseen), tuple(sorted(devices - {""})), self._terminated
        )

    def _meet(self, pairs: Sequence[tuple[str, str]]) -> None:
        """One round: all pairs at once."""
        fleet, limits = self._fleet, self._limits
        self._round += 1
        self._answers, self._ports = {}, {}
        for offset, (low, _) in enumerate(pairs):
            fleet.send([low], order="port", wish=self._first_port + offset)
        self._await(lambda node: node in self._ports, [low for low, _ in pairs], _ANSWER_S)
        for low, high in pairs:
            if low not in self._ports or len(fleet.present((low, high))) < 2:
                continue
            common = {
                "address": fleet.agents[low].link.peer,
                "port": self._ports[low],
                "gpu": self._gpu,
                **limits.model_dump(include={"mib", "repeats", "timeout_s"}),
            }
            for rank, node in enumerate((low, high)):
                fleet.send([node], order=LINK, round=self._round, task={"rank": rank, **common})
        other = {node: end for pair in pairs for node, end in (pair, pair[::-1])}

        def is_over(node: str) -> bool:
            """A pair is, once one of it has failed: the other would wait in vain."""
            failed = "gbytes" not in self._answers.get(other[node], {"gbytes": 0})
            return node in self._answers or failed or other[node] not in fleet.agents

        trying = [node for pair in pairs if pair[0] in self._ports for node in pair]
        self._await(is_over, trying, limits.timeout_s + _ANSWER_S)

    def _await(
        self, answered: Callable[[str], bool], nodes: Sequence[str], within_s: float
    ) -> None:
        deadline = time.monotonic() + within_s
        while not all(answered(node) for node in self._fleet.present(nodes)):
            if time.monotonic() > deadline or self._terminated:
                return
            for agent, message in self._fleet.listen():
                self._take(agent.node, message)

    def _take(self, node: str, message: Message) -> None:
        event = message["event"]
        if event == "port":
            self._ports[node] = int(message["port"])
        elif event == "terminated":
            self._terminated = True
        elif event == LINK and message["round"] == self._round:
            self._answers[node] = message

    def _found(self, pair: tuple[str, str]) -> Link | str:
        """The link of a pair, or in words why it was not tried."""
        name = " and ".join(pair)
        gone = [node for node in pair if node not in self._fleet.agents]
        if gone:
            return f"{name} ({', '.join(gone)} is lost)"
        both: list[dict[str, Any]] = [self._answers.get(node, {}) for node in pair]
        for answer in both:
            if "unseen" in answer:
                return f"{name} ({answer['unseen']})"
        if all("gbytes" in answer for answer in both):
            return Link(pair, min(float(answer["gbytes"]) for answer in both))
        said = next((answer["dead"] for answer in both if "dead" in answer), "no answer")
        return Link(pair, None, said)

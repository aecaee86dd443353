"""What a job's coordinator is told on its command line: the plan, and how agents are started.

In: the arguments that the batch script (`templates/train.sbatch.j2`) gives. Out: a `Plan`, and the
`srun` that starts an agent on every node.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from training.cluster.hang import SectionLimits
from training.cluster.health.config import LinkLimits


class Plan(NamedTuple):
    """What to run. `nodes_wanted` of the allocation's `node_names` train, the rest are spares."""

    folder: Path  # the attempt's
    command: tuple[str, ...]
    node_names: tuple[str, ...]
    nodes_wanted: int
    processes: int
    restarts: int
    checkpoints: Path | None
    sections: SectionLimits
    replace_stragglers: bool = False
    gpu: bool = False  # whether the ranks train on GPUs
    links: LinkLimits | None = None  # None: the links between the nodes are not measured
    kept_links: Path | None = None  # the planner's folder of such measurements


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The coordinator's command line."""
    parser = argparse.ArgumentParser(
        prog="coordinator", description="Run one job's ranks to their end."
    )
    parser.add_argument("--attempt-dir", type=Path, required=True)
    parser.add_argument("--node-names", required=True, help="the allocation's nodes, by commas")
    parser.add_argument("--host", default="127.0.0.1", help="this machine's address for them")
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--cpus", type=int, default=1, help="of a node's agent and ranks")
    parser.add_argument("--restarts", type=int, default=0)
    parser.add_argument("--replace-stragglers", action="store_true", help="by spares")
    parser.add_argument("--checkpoints", type=Path)
    parser.add_argument("--sections", default="{}", help="SectionLimits as JSON")
    parser.add_argument("--health", default="", help="NodeLimits of the agents' checks as JSON")
    parser.add_argument("--health-every", type=float, default=0.0, help="seconds; 0: only at first")
    parser.add_argument("--gpu", action="store_true", help="the ranks train on GPUs")
    parser.add_argument("--links", default="", help="LinkLimits as JSON; empty: not measured")
    parser.add_argument("--kept-links", type=Path, help="the planner's folder of measured links")
    parser.add_argument("--metrics-targets", type=Path, help="of the agents, for Prometheus")
    parser.add_argument("--metrics-port", type=int, default=0, help="of the agents; 0: derived")
    parser.add_argument("--srun-option", action="append", default=[], help="for the agents' step")
    parser.add_argument(
        "--agent-word",
        action="append",
        default=[],
        help="the words that start Python for an agent, such as those of a container's runtime",
    )
    parser.add_argument("command", nargs="+")
    return parser.parse_args(arguments)


def plan_of(chosen: argparse.Namespace) -> Plan:
    """What the command line says of the job itself."""
    return Plan(
        chosen.attempt_dir,
        tuple(chosen.command),
        tuple(chosen.node_names.split(",")),
        chosen.nodes,
        chosen.processes,
        chosen.restarts,
        chosen.checkpoints,
        SectionLimits.model_validate_json(chosen.sections),
        chosen.replace_stragglers,
        chosen.gpu,
        LinkLimits.model_validate_json(chosen.links) if chosen.links else None,
        chosen.kept_links,
    )


def agent_command(chosen: argparse.Namespace) -> list[str]:
    """What every agent runs."""
    return [
        *(chosen.agent_word or [sys.executable]), "-m", "training.cluster.node_agent",
        "--attempt-dir", str(chosen.attempt_dir), "--processes", str(chosen.processes),
        "--health", chosen.health, "--health-every", str(chosen.health_every),
        *_metrics_words(chosen), "--", *chosen.command,
    ]  # fmt: skip


def _metrics_words(chosen: argparse.Namespace) -> list[str]:
    if chosen.metrics_targets is None:
        return []
    return [
        "--metrics-targets", str(chosen.metrics_targets),
        "--metrics-port", str(chosen.metrics_port),
    ]  # fmt: skip


def srun_command(chosen: argparse.Namespace, nodes: int) -> list[str]:
    """One agent per node; a node that dies takes neither the step nor the job with it.

    From 22.05 on, srun does not take --cpus-per-task over from sbatch.
    """
    return [
        "srun", "--export=ALL", "--mpi=none", "--no-kill", "--kill-on-bad-exit=0", "--label",
        f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1",
        f"--cpus-per-task={chosen.cpus}", *chosen.srun_option, *agent_command(chosen),
    ]  # fmt: skip

"""Where everything lies inside a workspace. No other module joins these names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from workspace.errors import UserError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


@dataclass(frozen=True)
class Workspace:
    """The folder that all stages share.

    corpus/ graph/ datasets/<name>/ runs/<run>/ evaluations/<id>/ models/ , as laid down in
    docs/architecture.md.
    """

    root: Path

    @property
    def corpus(self) -> Path:
        return self.root / "corpus"

    @property
    def graph(self) -> Path:
        return self.root / "graph"

    def dataset(self, name: str) -> Path:
        return self.root / "datasets" / safe_name(name)

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    def run(self, name: str) -> Path:
        return self.runs / safe_name(name)

    @property
    def bad_nodes(self) -> Path:
        """The log of nodes that failed training jobs (training.cluster.blacklist)."""
        return self.root / "bad-nodes.jsonl"

    @property
    def links(self) -> Path:
        """Links between nodes as a person measured them (training.cluster.health.bandwidth)."""
        return self.root / "links.json"

    @property
    def kept_links(self) -> Path:
        """The newest measurements that jobs made before they trained (training.cluster.link_check),
        by the number of nodes."""
        return self.root / "links"

    @property
    def metrics_targets(self) -> Path:
        """Where Prometheus finds the nodes that train (training.cluster.agent_metrics)."""
        return self.root / "metrics-targets"

    @property
    def evaluations(self) -> Path:
        return self.root / "evaluations"

    def evaluation(self, evaluation_id: str) -> Path:
        return self.evaluations / safe_name(evaluation_id)

    @property
    def leaderboard(self) -> Path:
        """The page and the JSON of all evaluations, without their suffix."""
        return self.evaluations / "leaderboard"

    @property
    def models(self) -> Path:
        return self.root / "models"

    @property
    def cluster_files(self) -> Path:
        """Logs and certificates of the jobs that work on shards."""
        return self.root / ".cluster"

    @property
    def cache(self) -> Path:
        """What can be made again at any time."""
        return self.root / ".cache"

    def slurm_queue(self, name: str) -> Path:
        """What Slurm last said of a user's jobs (training.cluster.slurm_queue)."""
        return self.cache / f"slurm-queue-{safe_name(name)}.json"

    @property
    def answers(self) -> Path:
        """Models' answers by everything that they depend on, for all evaluations."""
        return self.cache / "answers"

    @property
    def verilog_cache(self) -> Path:
        """Recorded references and judgements of Verilog answers, by content."""
        return self.cache / "verilog"

    @property
    def llm(self) -> Path:
        """Replies of endpoints and what they cost, shared by all stages."""
        return self.root / "llm"

    @property
    def locks(self) -> Path:
        return self.root / ".locks"


def safe_name(name: str) -> str:
    """`name` if it is one plain path component, else `UserError`."""
    if not _NAME.fullmatch(name):
        raise UserError(
            f"name {name!r}: use letters, digits, dot, dash and underscore (at most 128)"
        )
    return name

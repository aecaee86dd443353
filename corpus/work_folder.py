"""Where a run of ingest keeps its unfinished work, under `WORKSPACE/corpus/.work`."""

from __future__ import annotations

from pathlib import Path

from corpus.ingest_config import IngestConfig


class WorkFolder:
    """The paths of one configuration's work."""

    def __init__(self, config: IngestConfig) -> None:
        self._folder = config.folder / ".work"
        # Not under the plan's key: a file added after a kill must not cost the work before it.
        self.units = self._folder / f"units-{config.generation}"
        # Seconds and timing log of each call of `process`, since several may have been needed.
        self.timings = self._folder / f"seconds-{self.units.name}"
        # `process` runs in other processes and knows the config alone.
        self.plan = self._folder / f"plan-{config.identity}.json"
        self.secrets = self._folder / f"passwords-{config.identity}.json"

    def shard_lock(self, index: int) -> Path:
        return self._folder / "locks" / f"shard-{index}.lock"

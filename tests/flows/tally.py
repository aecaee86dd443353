"""A small real stage, to run the flows' machinery without a corpus: counts words of text files."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from flows._cli import main, stage_door
from workspace import manifest
from workspace import publish as atomic
from workspace.config import StageConfig, setting
from workspace.errors import TransientError, UserError
from workspace.ids import hash_file
from workspace.manifest import Manifest
from workspace.paths import Workspace
from workspace.stage import Shard, ShardReport, StagePlan

STAGE = "tally"


class TallyConfig(StageConfig):
    """Count the words of text files."""

    sources: tuple[Path, ...] = setting(
        position=1, description="text files", positional=True, affects_output=False, min_length=1
    )
    workspace: Path = setting(
        Path("workspace"), position=2, description="output folder", affects_output=False
    )
    shortest: int = setting(1, position=3, description="letters of the shortest word", ge=1, le=9)
    pause_s: float = setting(
        0.0, position=4, description="seconds to wait per file", ge=0, affects_output=False
    )


def plan(config: TallyConfig) -> StagePlan:
    missing = [source for source in config.sources if not source.is_file()]
    if missing:
        raise UserError(f"{missing[0]} is not a file")
    inputs = {source.name: hash_file(source) for source in config.sources}
    folder = Workspace(config.workspace).corpus
    key = manifest.stage_key(STAGE, "1", config.fingerprint(), inputs)
    shards = tuple(
        Shard(i, (str(source),), units=1) for i, source in enumerate(sorted(config.sources))
    )
    published = manifest.find_published(folder, key)
    return StagePlan(STAGE, key, folder, shards, inputs, published)


def process(config: TallyConfig, shard: Shard) -> ShardReport:
    (source,) = map(Path, shard.items)
    target = _work(config) / f"{shard.index}.json"
    if target.exists():
        return ShardReport(shard.index)
    time.sleep(config.pause_s)
    text = source.read_text(encoding="utf-8")
    if "busy" in text and not (_work(config) / "tried").exists():
        atomic.write_text(_work(config) / "tried", "once")
        raise TransientError("busy, try again")
    if "explode" in text:
        raise RuntimeError("a fault of ours")
    if "refuse" in text:
        raise UserError(f"{source}: cannot be counted: remove it")
    words = [word for word in text.split() if len(word) >= config.shortest]
    atomic.write_json(target, {"words": len(words), "made_by": os.getpid()})
    return ShardReport(shard.index, {"words": len(words)})


def publish(config: TallyConfig, planned: StagePlan) -> Manifest:
    import json

    parts = [json.loads(path.read_text()) for path in sorted(_work(config).glob("*.json"))]
    words = sum(part["words"] for part in parts)
    report = planned.directory / "report.html"
    atomic.write_text(report, f"<h1>{words} words</h1>\n")
    made = Manifest(
        stage=STAGE,
        key=planned.key,
        fingerprint=config.fingerprint(),
        settings=config.output_settings(),
        inputs=planned.inputs,
        code_version=manifest.code_version(),
        counts_in={"files": len(planned.shards)},
        counts_out={"words": words, "quarantined": int(words == 0)},
        rejects={"no_words": 1} if words == 0 else {},
        created=manifest.now(),
        files=[manifest.describe_file(planned.directory, report)],
    )
    manifest.write_manifest(planned.directory, made)
    return made


def _work(config: TallyConfig) -> Path:
    folder = Workspace(config.workspace).corpus / ".work" / "tally"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


DOOR = stage_door(
    STAGE, TallyConfig, sys.modules[__name__], "Text files -> number of words.", module="tally"
)

if __name__ == "__main__":
    sys.exit(main(DOOR))

from prefect import flow  # noqa: E402

from flows._options import flow_options  # noqa: E402
from tasks.stage import run_stage, stage_tasks  # noqa: E402
from workspace.stage import StageResult  # noqa: E402

TASKS = stage_tasks(STAGE, sys.modules[__name__], unit="files")


@flow(**flow_options(STAGE, "tally {config.workspace.name}"))
def tally(config: TallyConfig) -> StageResult:
    """Count the words of text files."""
    return run_stage(TASKS, config)

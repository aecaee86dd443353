"""What a stage shows of its progress when a shard fails and is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from tasks.stage import HasWorkspace, taking_back
from workspace.errors import TransientError
from workspace.progress import Advance
from workspace.stage import Shard, ShardReport


def test_a_shard_that_is_tried_again_counts_once() -> None:
    shown: list[int] = []
    tries = iter([True, True, False])

    def process(config: HasWorkspace, shard: Shard, advance: Advance) -> ShardReport:
        advance(2)
        if next(tries):
            raise TransientError("the endpoint is gone")
        advance(shard.units - 2)
        return ShardReport(shard.index)

    class Config:
        workspace = Path()

    counted = taking_back(process)
    for _ in range(2):
        with pytest.raises(TransientError):
            counted(Config(), Shard(0, ("m",), units=8), shown.append)
    assert counted(Config(), Shard(0, ("m",), units=8), shown.append) == ShardReport(0)
    assert sum(shown) == 8
    assert max(sum(shown[: i + 1]) for i in range(len(shown))) == 8

"""Time in which a watcher did not run is told apart from its usual rounds."""

from __future__ import annotations

from training.cluster.standstill import Standstill


def test_only_a_long_gap_between_rounds_counts() -> None:
    now = [100.0]
    watch = Standstill(lambda: now[0])

    def later(seconds: float) -> float:
        now[0] += seconds
        return watch.seconds()

    assert [later(0.1), later(1.5), later(60.0), later(0.1)] == [0.0, 0.0, 60.0, 0.0]
    now[0] += 60
    watch.skip()
    assert later(0.1) == 0.0, "it was busy with something that takes long"

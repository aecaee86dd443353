from __future__ import annotations

from pathlib import Path

from training.metrics import MetricsFollower, StepMetrics, append, read_metrics


def step(number: int, *, attempt: int = 1, loss: float = 1.0, stage: str = "sft") -> StepMetrics:
    return StepMetrics(
        stage=stage,
        attempt=attempt,
        step=number,
        total_steps=10,
        epoch=number / 10,
        loss=loss,
        learning_rate=1e-4,
        grad_norm=0.5,
        tokens=300,
        seconds=2.0,
        extra={"entropy": 0.1},
    )


def metrics_file(run: Path, stage: str, attempt: int) -> Path:
    path = run / stage / "attempts" / str(attempt) / "metrics.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = metrics_file(tmp_path, "sft", 1)
    append(path, step(1))
    append(path, step(2))
    assert read_metrics(tmp_path) == [step(1), step(2)]
    assert step(1).tokens_per_s == 150.0


def test_steps_trained_again_count_once(tmp_path: Path) -> None:
    for number in range(1, 8):
        append(metrics_file(tmp_path, "sft", 9), step(number, attempt=9))
    for number in (5, 6):
        append(metrics_file(tmp_path, "sft", 10), step(number, attempt=10, loss=0.5))
    seen = [(metrics.step, metrics.attempt) for metrics in read_metrics(tmp_path)]
    assert seen == [(1, 9), (2, 9), (3, 9), (4, 9), (5, 10), (6, 10)]
    again = step(6, attempt=10, loss=0.25)  # by a later generation of the same attempt
    append(metrics_file(tmp_path, "sft", 10), again)
    assert read_metrics(tmp_path)[-1] == again
    assert len(read_metrics(tmp_path)) == 6


def test_stages_come_in_their_order(tmp_path: Path) -> None:
    append(metrics_file(tmp_path, "rlvr", 1), step(1, stage="rlvr"))
    append(metrics_file(tmp_path, "sft", 1), step(1))
    assert [metrics.stage for metrics in read_metrics(tmp_path)] == ["sft", "rlvr"]
    assert [metrics.stage for metrics in read_metrics(tmp_path, "rlvr")] == ["rlvr"]


def test_a_torn_line_waits_for_its_end(tmp_path: Path) -> None:
    path = metrics_file(tmp_path, "sft", 1)
    append(path, step(1))
    whole = path.read_bytes()
    append(path, step(2))
    both = path.read_bytes()
    path.write_bytes(both[: len(whole) + 20])
    follower = MetricsFollower(path)
    assert follower.new() == [step(1)]
    assert follower.new() == []
    path.write_bytes(both)
    assert follower.new() == [step(2)]


def test_a_block_of_zeros_is_skipped(tmp_path: Path) -> None:
    path = metrics_file(tmp_path, "sft", 1)
    path.write_bytes(b"\0" * 64 + b"\n")
    append(path, step(2))
    assert read_metrics(tmp_path) == [step(2)]


def test_no_metrics_yet(tmp_path: Path) -> None:
    assert read_metrics(tmp_path) == []

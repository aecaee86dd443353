from __future__ import annotations

import json
from pathlib import Path

import pytest

from training.ledger import Ledger, Origin, audit
from training.trainers.sample_order import SampleOrder
from workspace.errors import UserError

SAMPLES, ROWS = 10, 4
ORDER = SampleOrder(SAMPLES, seed=3)


def write(
    stage: Path,
    writer: str,
    steps: range,
    *,
    resumed: Origin | None = None,
    ranks: int = 2,
    change: dict[int, int] | None = None,
) -> None:
    """What `ranks` ranks write when they train `steps`; `change`: place -> another sample."""
    folder = stage / "attempts" / writer.partition(".")[0]
    for rank in range(ranks):
        ledger = Ledger(
            folder,
            writer,
            rank=rank,
            world_size=ranks,
            resumed_from=resumed,
            samples=SAMPLES,
            rows_per_step=ROWS,
        )
        for step in steps:
            rows = ORDER.between((step - 1) * ROWS, step * ROWS)
            places = list(range(rank, ROWS, ranks))
            known = change or {}
            fed = [known.get((step - 1) * ROWS + place, rows[place]) for place in places]
            ledger.trained(step, places, fed)
        ledger.close()


def test_an_undisturbed_run_has_every_sample_once_in_every_pass(tmp_path: Path) -> None:
    write(tmp_path, "1", range(1, 6))
    found = audit(tmp_path)
    assert found.faults == []
    assert (found.steps, found.samples, found.epochs) == (5, SAMPLES, 2.0)
    assert found.stretches == [("1", 1, 5)]


def test_lost_steps_are_trained_again_and_counted_once(tmp_path: Path) -> None:
    """The steps after the last checkpoint of a killed writer are in two ledgers."""
    write(tmp_path, "1", range(1, 4))
    write(tmp_path, "1.2", range(3, 5), resumed=Origin("1", 2), ranks=1)
    write(tmp_path, "2", range(4, 6), resumed=Origin("1.2", 3), ranks=4)
    found = audit(tmp_path)
    assert found.faults == []
    assert found.stretches == [("1", 1, 2), ("1.2", 3, 3), ("2", 4, 5)]
    assert found.retrained_steps == 2


def test_an_attempt_that_never_trained_is_no_part_of_it(tmp_path: Path) -> None:
    write(tmp_path, "1", range(1, 4))
    write(tmp_path, "2", range(4, 4), resumed=Origin("1", 3))
    assert audit(tmp_path).stretches == [("1", 1, 3)]


def test_the_finished_attempt_is_named_by_the_result(tmp_path: Path) -> None:
    write(tmp_path, "1", range(1, 6))
    write(tmp_path, "2", range(1, 2))
    (tmp_path / "result.json").write_text(json.dumps({"attempt": 1, "steps": 5}))
    assert audit(tmp_path).stretches == [("1", 1, 5)]


def test_a_repeated_and_a_lost_sample_are_named(tmp_path: Path) -> None:
    first, second = ORDER.between(0, 2)
    write(tmp_path, "1", range(1, 6), change={0: second})
    assert audit(tmp_path).faults == [
        f"pass 0: sample {second} trained 2 times",
        f"pass 0: sample {first} left out",
    ]


def test_a_gap_between_writers_is_found(tmp_path: Path) -> None:
    write(tmp_path, "1", range(1, 3))
    write(tmp_path, "2", range(4, 6), resumed=Origin("1", 2))
    faults = audit(tmp_path).faults
    assert [fault for fault in faults if fault.startswith("place")] == [
        f"place {cursor} of the order: left out" for cursor in range(8, 12)
    ]


def test_a_missing_rank_is_found(tmp_path: Path) -> None:
    write(tmp_path, "1", range(1, 6))
    (tmp_path / "attempts/1/ledger/1/rank-0001.jsonl").unlink()
    assert "step 1: lines of 1 ranks" in audit(tmp_path).faults


def test_a_torn_last_line_does_not_count(tmp_path: Path) -> None:
    write(tmp_path, "1", range(1, 6))
    path = tmp_path / "attempts/1/ledger/1/rank-0000.jsonl"
    path.write_bytes(path.read_bytes() + b'{"step": 6, "curs')
    assert audit(tmp_path).steps == 5


def test_without_a_ledger_the_error_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no ledger"):
        audit(tmp_path)

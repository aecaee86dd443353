"""How often to save: Young's interval, and the schedule that measures what it needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.trainers.save_interval import FIRST_SAVE_STEPS, SaveSchedule, young_interval_s


def lost_share(interval_s: float, save_s: float, mtbf_s: float) -> float:
    """Of the time: saving, and half an interval for each failure."""
    return save_s / interval_s + interval_s / (2 * mtbf_s)


def test_a_known_interval() -> None:
    """BLOOM-176B: a save took 40 s; with a failure every 45 hours, once an hour is best."""
    assert young_interval_s(40, 45 * 3600) == pytest.approx(3600)


@given(
    st.floats(0.01, 1e4),
    st.floats(1e3, 1e8),
    st.floats(0.1, 10).filter(lambda factor: abs(factor - 1) > 0.01),
)
def test_no_other_interval_loses_less(save_s: float, mtbf_s: float, factor: float) -> None:
    best = young_interval_s(save_s, mtbf_s)
    assert lost_share(best, save_s, mtbf_s) < lost_share(best * factor, save_s, mtbf_s)


def test_a_given_number_of_steps_is_kept(tmp_path: Path) -> None:
    schedule = SaveSchedule(5, 1e6, tmp_path / "record.json")
    assert [step for step in range(1, 16) if schedule.is_due(step, 1.0)] == [5, 10, 15]
    schedule.saved(5, 100.0)
    assert schedule.interval_steps == 5
    assert not (tmp_path / "record.json").exists()


def test_the_first_save_is_measured_and_sets_the_interval(tmp_path: Path) -> None:
    """Steps of 2 s, saves of 8 s, a failure in 10,000 s: every 400 s, which is 200 steps."""
    record = tmp_path / "record.json"
    schedule = SaveSchedule(0, 1e4, record)
    saves = []
    for step in range(101, 801):  # resumed from step 100
        if schedule.is_due(step, 2.0):
            saves.append(step)
            schedule.saved(step, 8.0)
    first = 100 + FIRST_SAVE_STEPS
    assert saves == [first, first + 200, first + 400, first + 600]
    written = json.loads(record.read_text())
    assert (written["interval_steps"], written["save_s"], written["step_s"]) == (200, 8.0, 2.0)

    again = SaveSchedule(0, 1e4, record)
    assert next(step for step in range(701, 1000) if again.is_due(step, 2.0)) == 900


def test_all_ranks_save_in_the_same_steps(tmp_path: Path) -> None:
    """They measure different times; rank 0's decides."""
    said: list[float] = []

    def tell(number: float) -> float:
        said.append(number)
        return number

    zero = SaveSchedule(0, 1e4, tmp_path / "zero.json", agree=tell)
    one = SaveSchedule(0, 1e4, tmp_path / "one.json", writes=False, agree=lambda _: said[-1])
    for step in range(1, 1000):
        due = zero.is_due(step, 2.0)
        assert one.is_due(step, 3.1) == due
        if due:
            zero.saved(step, 8.0)
            one.saved(step, 55.0)
    assert not (tmp_path / "one.json").exists()

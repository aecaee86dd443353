"""Progress lines say how much is done and how long the rest takes."""

from __future__ import annotations

import logging

import pytest

from workspace.progress import clock, describe, log_lines


def test_a_line_carries_share_speed_and_time_left() -> None:
    line = describe("parsing", 120, 400, "documents", 30.0)
    assert line == "parsing: 120/400 documents (30 %), 4.0/s, 01:10 left"


def test_before_the_first_unit_the_time_left_is_unknown() -> None:
    assert describe("parsing", 0, 400, "documents", 0.0).endswith("? left")


def test_hours() -> None:
    assert clock(3 * 3600 + 62) == "3:01:02"


def test_log_lines_begin_and_end_with_the_total(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO),
        log_lines("parsing", 2, "documents", every_s=0.0) as advance,
    ):
        advance(1)
        advance(1)
    assert len(caplog.messages) == 4
    assert caplog.messages[0] == "parsing: 2 documents to do"
    assert caplog.messages[-1].startswith("parsing: 2 documents in ")

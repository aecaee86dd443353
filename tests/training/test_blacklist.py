"""How long a bad node is left out."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.cluster.blacklist import (
    DAY_S,
    FORGIVEN,
    HOUR_S,
    Blacklist,
    Offence,
    Terms,
    avoided,
    bearable,
    main,
    score,
)

NOW = 1_767_225_600.0


def offence(node: str, days_ago: float, *, attempt: int = 1, cause: str = "node_lost") -> Offence:
    return Offence(NOW - days_ago * DAY_S, node, cause, "run", attempt)


def test_an_offence_is_forgotten_after_a_day() -> None:
    assert avoided([offence("n1", 0.9)], NOW) == {"n1": NOW + 0.1 * DAY_S}
    assert avoided([offence("n1", 1.1)], NOW) == {}


@pytest.mark.parametrize(
    ("until", "up", "wanted", "left_out"),
    [
        ({"a": 1.0}, "a b c", 2, "a"),
        ({"a": 1.0}, "a b", 2, ""),
        ({"a": 1.0, "b": 2.0}, "a b c", 2, "b"),
        ({"a": 2.0, "b": 1.0}, "a b c", 2, "a"),
        ({"a": 1.0, "b": 2.0}, "a b c d", 2, "a b"),
        # a node that is down makes room for nobody
        ({"a": 1.0, "b": 2.0}, "b c", 2, "a"),
        ({"a": 1.0, "b": 2.0}, "b c", 1, "a b"),
        ({"a": 1.0}, "b", 2, "a"),
    ],
)
def test_nodes_that_come_back_soonest_are_taken_where_too_few_are_up(
    until: dict[str, float], up: str, wanted: int, left_out: str
) -> None:
    assert bearable(until, frozenset(up.split()), wanted) == tuple(left_out.split())


@pytest.mark.parametrize("cause", ["node_silent", "node_unfit"])
def test_weak_evidence_counts_for_an_hour_and_doubles_like_any_other(cause: str) -> None:
    hour = 1 / 24
    assert avoided([offence("n1", 0.9 * hour, cause=cause)], NOW)
    assert avoided([offence("n1", 1.1 * hour, cause=cause)], NOW) == {}
    again = [offence("n1", at * hour, attempt=at, cause=cause) for at in (2, 4, 6, 8, 10)]
    until = avoided(again, NOW)["n1"]
    assert 12 * HOUR_S < until - NOW < 14 * HOUR_S, "the fifth in a day: 16 hours from its time"


def test_a_repeat_offender_stays_out_longer() -> None:
    """Once more after a week: half of the first counts, so 2**0.5 days."""
    twice = [offence("n1", 8.2, attempt=1), offence("n1", 1.2, attempt=2)]
    assert set(avoided(twice, NOW)) == {"n1"}
    assert avoided(twice[1:], NOW) == {}
    week_later = offence("n1", 0.0, attempt=3)
    assert score([offence("n1", 7.0), week_later], "n1", NOW) == 1.5


def test_a_repaired_node_is_used_again() -> None:
    log = [offence("n1", 0.5), Offence(NOW - 60, "n1", FORGIVEN)]
    assert avoided(log, NOW) == {}
    assert set(avoided([*log, offence("n1", 0.0)], NOW)) == {"n1"}


def test_the_log_outlives_its_writer(tmp_path: Path) -> None:
    log = Blacklist(tmp_path / "bad-nodes.jsonl")
    assert log.avoided(NOW) == {}
    assert log.add(offence("n1", 0.0)), "new"
    assert not Blacklist(log.path).add(offence("n1", 0.0)._replace(time=NOW + 5)), "the same event"
    assert Blacklist(log.path).avoided(NOW) == {"n1": NOW + DAY_S}
    log.forgive("n1", NOW + 1)
    assert log.avoided(NOW + 2) == {}


def test_a_torn_line_costs_itself_only(tmp_path: Path) -> None:
    log = Blacklist(tmp_path / "bad-nodes.jsonl")
    log.add(offence("n1", 0.0))
    with log.path.open("ab") as stream:
        stream.write(b'{"time": 12\n' + b"\0" * 20 + b"\n")
    log.add(offence("n2", 0.0))
    assert set(log.avoided(NOW)) == {"n1", "n2"}


def test_the_command_lists_and_forgives(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Blacklist(tmp_path / "bad-nodes.jsonl")
    for node in ("n1", "n2"):
        log.add(Offence(time.time(), node, "node_lost", "dsm-1/sft", 1, 1, "no word"))
    assert main(["--workspace", str(tmp_path), "--forgive", "n1"]) == 0
    listed = capsys.readouterr().out
    assert listed.startswith("n2 until") and "node_lost in dsm-1/sft no word" in listed
    assert "n1" not in listed


offences = st.lists(
    st.builds(
        offence,
        st.sampled_from(["n1", "n2"]),
        st.floats(0, 60),
        cause=st.sampled_from(["node_lost", FORGIVEN]),
    )
)


@given(offences)
def test_every_sentence_ends(log: list[Offence]) -> None:
    terms = Terms()
    assert avoided(log, NOW + terms.longest_s + 1, terms) == {}
    for until in avoided(log, NOW, terms).values():
        assert NOW < until <= NOW + terms.longest_s


@given(offences)
def test_another_offence_never_shortens_the_sentence(log: list[Offence]) -> None:
    before = avoided(log, NOW)
    after = avoided([*log, offence("n1", 0.0)], NOW)
    assert after["n1"] >= before.get("n1", 0.0)

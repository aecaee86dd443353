"""The links between a job's nodes before its ranks start: whom they point at, what follows."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranks_on_this_machine import Job

from training.cluster.health.config import LinkLimits
from training.cluster.link_check import LINKS_NAME, Measured, pairs_to_meet
from training.cluster.recovery import Cause, Ending, Means, Resubmit, Stop, blamed, decide
from training.cluster.suspicion import Link, bad_links, of_links, without_pairs
from training.planner.links import kept_links, read_links

GOOD, SLOW = 20.0, 2.0
NODES = ("a", "b", "c", "d", "e")
# gloo cannot meet anybody through an interface that is not there.
NO_NETWORK = "GLOO_SOCKET_IFNAME=absent0"
LIMITS = LinkLimits(mib=1, repeats=1, least_share=0, timeout_s=60)


@given(st.integers(2, 33))
def test_each_node_meets_two_others_and_no_two_at_a_time(nodes: int) -> None:
    names = [f"n{number}" for number in range(nodes)]
    met: dict[str, set[str]] = {name: set() for name in names}
    for pairs in pairs_to_meet(names):
        busy = [name for pair in pairs for name in pair]
        assert len(busy) == len(set(busy))
        for low, high in pairs:
            met[low].add(high)
            met[high].add(low)
    assert all(len(others) >= min(2, nodes - 1) for others in met.values())
    assert len(list(pairs_to_meet(names))) <= 3


def links(nodes: int, reached: Callable[[str, str], float | None]) -> list[Link]:
    return [
        Link(pair, reached(*pair), "timed out")
        for pairs in pairs_to_meet(NODES[:nodes])
        for pair in pairs
    ]


@given(st.integers(3, 5), st.integers(0, 4), st.sampled_from([SLOW, None]))
def test_a_node_with_two_bad_links_is_suspected_and_its_partners_are_not(
    nodes: int, bad: int, passed: float | None
) -> None:
    node = NODES[bad % nodes]
    found = of_links(links(nodes, lambda *pair: passed if node in pair else GOOD), LinkLimits())
    assert found is not None
    assert found.nodes == (node,)
    assert found.cause is (Cause.LINK_SLOW if passed else Cause.LINK_DEAD)


@pytest.mark.parametrize(
    ("found", "limits", "cause", "said"),
    [
        ([Link(("a", "b"), None, "timed out")], {}, Cause.LINK_DEAD, "the pair is known to be bad"),
        ([Link(("a", "b"), 2.0)], {"least_gbytes": 5}, Cause.LINK_SLOW, "the pair is known"),
        # Of three nodes one link: each of its ends reaches the third.
        (
            [Link(("a", "b"), None), Link(("a", "c"), GOOD), Link(("b", "c"), GOOD)],
            {}, Cause.LINK_DEAD, "the pair is known to be bad",
        ),
        (
            [Link(("a", "b"), None), Link(("a", "c"), None), Link(("b", "c"), None)],
            {}, Cause.LINK_DEAD, "most nodes at once",
        ),
        (
            [Link(("a", "b"), 2.0), Link(("a", "c"), 2.0), Link(("b", "c"), 2.0)],
            {"least_gbytes": 5}, Cause.LINK_SLOW, "most nodes at once",
        ),
    ],
)  # fmt: skip
def test_where_nobody_can_be_named_it_says_what_is_known(
    found: list[Link], limits: dict[str, float], cause: Cause, said: str
) -> None:
    suspicion = of_links(found, LinkLimits(**limits))  # type: ignore[arg-type]
    assert suspicion is not None
    assert (suspicion.cause, suspicion.nodes) == (cause, ())
    assert said in suspicion.why


def test_good_links_point_at_nobody() -> None:
    assert of_links(links(5, lambda *pair: GOOD), LinkLimits(least_gbytes=19)) is None
    # With two nodes there is nothing to compare with.
    assert bad_links([Link(("a", "b"), 0.01)], LinkLimits()) == []
    assert of_links([], LinkLimits()) is None


def test_a_bad_pair_is_kept_apart_where_that_leaves_enough() -> None:
    assert without_pairs("abc", [("a", "b")], 2) == ["a", "c"]
    assert without_pairs("abc", [("a", "b")], 3) == []
    assert without_pairs("abcd", [("a", "b"), ("c", "d")], 2) == ["a", "c"]


def test_dead_links_count_against_a_node_like_its_own_word_and_slow_ones_do_not() -> None:
    dead = Ending(1, 1, Cause.LINK_DEAD, ("a", "b"), ("b",), "nothing passed", ended=100.0)
    means = Means(worlds=(2,), usable=frozenset("abc"), now=100.0)
    assert decide([dead], means) == Resubmit(
        "a link between nodes is dead on b: nothing passed", ("b",)
    )
    assert set(blamed([dead])) == {"b"}
    slow = Ending(1, 1, Cause.LINK_SLOW, ("a", "b"), ("b",), "2 GB/s", ended=100.0)
    assert blamed([slow]) == {}
    assert decide([slow], means).excluding == ("b",)  # type: ignore[union-attr]
    assert decide([slow], means._replace(usable=frozenset("ab"))).excluding == ()  # type: ignore[union-attr]


def test_a_pair_that_stays_dead_ends_the_run_and_blames_no_node() -> None:
    ends = [Ending(n, 1, Cause.LINK_DEAD, ("a", "b"), (), "nothing passed") for n in (1, 2, 3)]
    decision = decide(ends, Means(worlds=(2,), usable=frozenset("ab")))
    assert isinstance(decision, Stop)
    assert "before anything was trained; no node is blamed" in decision.reason


_folders = count(1)


@pytest.fixture
def job(tmp_path: Path) -> Callable[..., Job]:
    def start(**layout: Any) -> Job:
        folder = tmp_path / "attempts" / str(next(_folders))
        settings = {"processes": 1, "links": LIMITS, **layout}
        return Job(folder, "-c", "pass", **settings).start()

    return start


def test_of_two_nodes_only_the_pair_is_known_to_be_bad(job: Callable[..., Job]) -> None:
    failed = job(nodes=2, restarts=5, environments={"n1": NO_NETWORK})
    assert failed.wait() == 1
    assert failed.events("started") == []
    record = json.loads((failed.folder / "first-failure.json").read_text())
    assert (record["cause"], record["nodes"]) == ("link_dead", [])
    assert "the pair is known to be bad, not which of its nodes" in record["error"]


H100 = "NVIDIA H100 80GB HBM3"


def test_what_gpus_reached_is_kept_for_plans_of_as_many_nodes(tmp_path: Path) -> None:
    kept, today = tmp_path / "links", datetime.now(UTC)
    for nodes, speed in ((4, 30.0), (5, 20.0)):
        measured = Measured(tuple(links(nodes, lambda *pair: speed)), (), (H100,))  # noqa: B023
        measured.keep(tmp_path, kept, None)
    found = kept_links(kept, "H100", 3, today)
    assert found is not None and found.fabric_gbytes == 30.0
    found = kept_links(kept, "H100", 5, today)
    assert found is not None and found.fabric_gbytes == 20.0
    assert kept_links(kept, "H100", 6, today) is None
    assert kept_links(kept, "A100", 3, today) is None
    assert kept_links(kept, "H100", 3, today + timedelta(days=31)) is None
    # On CPUs it is no use to the planner, which plans GPUs.
    Measured(tuple(links(3, lambda *pair: 1.0)), (), ()).keep(tmp_path, kept, None)
    assert len(list(kept.iterdir())) == 2
    assert read_links(tmp_path / LINKS_NAME).fabric_gbytes == 1.0


@pytest.mark.parametrize(
    ("speeds", "words"),
    [
        ([1.16], "1 pair, 1.16 to 1.16 GB/s"),
        ([20.1, None, 22.4], "3 pairs, 20.1 to 22.4 GB/s, 1 dead"),
    ],
)
def test_what_was_found_in_words(speeds: list[float | None], words: str) -> None:
    links = tuple(Link(("a", "b"), speed) for speed in speeds)
    assert Measured(links, (), ()).in_words() == words

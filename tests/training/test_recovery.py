"""The recovery policy: a table of histories, and what must hold for every one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.cluster.blacklist import DAY_S, HOUR_S, SOFT
from training.cluster.recovery import (
    Cause,
    Conviction,
    Decision,
    Ending,
    KeepWaiting,
    Limits,
    Means,
    RestartInPlace,
    Resubmit,
    Shrink,
    Stop,
    UseSpare,
    avoided,
    blamed,
    convictions,
    decide,
    error_signature,
    sentenced,
)

NODES = ("n1", "n2")


def ending(
    cause: Cause,
    *suspects: str,
    attempt: int = 1,
    generation: int = 1,
    nodes: tuple[str, ...] = NODES,
    gained: int = 0,
    error: str = "",
) -> Ending:
    return Ending(attempt, generation, cause, nodes, suspects, error, 10, 10 + gained)


def failed(node: str, generation: int, error: str = "ValueError: no", **more: object) -> Ending:
    return ending(Cause.RANK_FAILED, node, generation=generation, error=error, **more)  # type: ignore[arg-type]


INSIDE = Means(in_allocation=True, worlds=(2,))
WITH_SPARE = INSIDE._replace(spares=("n3",))
OUTSIDE = Means(worlds=(2,))
ELASTIC = Means(worlds=(4, 2, 1))


@pytest.mark.parametrize(
    ("history", "means", "wanted"),
    [
        # a slow node makes room for a spare; without one it stays
        ([ending(Cause.SLOW, "n2", gained=1)], WITH_SPARE, UseSpare),
        ([ending(Cause.SLOW, "n2", gained=1)], INSIDE, RestartInPlace),
        # once more in a later attempt, which had it for want of others
        (
            [ending(Cause.SLOW, "n2", gained=1), ending(Cause.SLOW, "n2", attempt=2, gained=1)],
            WITH_SPARE,
            UseSpare,
        ),
        # a killed rank: the same nodes, a spare is kept for worse
        ([ending(Cause.RANK_KILLED, "n2")], WITH_SPARE, RestartInPlace),
        ([ending(Cause.RANK_KILLED, "n2")], OUTSIDE, Resubmit),
        ([ending(Cause.HUNG, "n2")], INSIDE, RestartInPlace),
        # a lost node: a spare, or a new job without it
        ([ending(Cause.NODE_LOST, "n2")], WITH_SPARE, UseSpare),
        ([ending(Cause.NODE_LOST, "n2")], INSIDE, Resubmit),
        ([ending(Cause.NODE_LOST, "n1", "n2")], WITH_SPARE, Resubmit),
        ([ending(Cause.HARDWARE, "n1", error="CUDA error: ECC")], WITH_SPARE, UseSpare),
        # no fault of the ranks: a new job, whatever the allocation could still do
        ([ending(Cause.STOPPED, gained=1)], WITH_SPARE, Resubmit),
        ([ending(Cause.PREEMPTED)], INSIDE, Resubmit),
        ([ending(Cause.TIME_LIMIT)], INSIDE, Resubmit),
        # nothing follows
        ([ending(Cause.USER_FAULT, error="no rows")], WITH_SPARE, Stop),
        ([ending(Cause.CANCELLED)], OUTSIDE, Stop),
        # a full disk: once more, not for ever
        ([ending(Cause.STORAGE)], INSIDE, RestartInPlace),
        ([ending(Cause.STORAGE), ending(Cause.STORAGE)], INSIDE, Stop),
        # the queue
        ([ending(Cause.NO_NODES)], OUTSIDE, KeepWaiting),
        ([ending(Cause.NO_NODES)], ELASTIC, Shrink),
        ([ending(Cause.NO_NODES)], ELASTIC._replace(waiting=1), KeepWaiting),
        ([ending(Cause.NO_NODES)], ELASTIC._replace(idle=0), KeepWaiting),
        # not enough nodes left for the wanted number
        ([ending(Cause.NODE_LOST, "n2")], OUTSIDE._replace(usable=frozenset({"n1"})), Stop),
        ([ending(Cause.NODE_LOST, "n2")], ELASTIC._replace(usable=frozenset("abc")), Shrink),
        ([ending(Cause.NODE_LOST, "n2")], ELASTIC._replace(usable=frozenset("abcd")), Resubmit),
    ],
)
def test_one_ending(history: list[Ending], means: Means, wanted: type[Decision]) -> None:
    assert type(decide(history, means)) is wanted


def test_what_the_decisions_carry() -> None:
    lost = [ending(Cause.NODE_LOST, "n2")]
    assert decide(lost, WITH_SPARE) == UseSpare("a node was lost on n2", ("n2",))
    assert decide(lost, OUTSIDE) == Resubmit("a node was lost on n2", ("n2",))
    assert decide([ending(Cause.NO_NODES)], ELASTIC) == Shrink("waited in the queue in vain", 2)
    three = ELASTIC._replace(usable=frozenset("abc"))
    assert decide(lost, three) == Shrink("a node was lost on n2", 2, ("n2",))


def lost(node: str, hour: float, cause: Cause = Cause.NODE_LOST) -> Ending:
    """With progress, as a run of days has it."""
    return replace(ending(cause, node, attempt=round(hour * 10), gained=1), ended=hour * HOUR_S)


def up(*names: str, hour: float = 10.0, worlds: tuple[int, ...] = (2,), down: str = "") -> Means:
    return Means(
        worlds=worlds, usable=frozenset(names), down=frozenset(down.split()), now=hour * HOUR_S
    )


SILENT = Cause.NODE_SILENT
ABC = ("a", "b", "c")


@pytest.mark.parametrize(
    ("history", "means", "excluding"),
    [
        # while others are there, the blamed stay out
        ([lost("a", 1)], up(*ABC), ("a",)),
        ([lost("a", 1), lost("b", 2)], up(*ABC, "d"), ("a", "b")),
        # both are up again: the one that was lost first comes back
        ([lost("a", 1), lost("b", 2)], up(*ABC), ("b",)),
        ([lost("b", 1), lost("a", 2)], up(*ABC), ("a",)),
        # silence counts for less than the scheduler's word, whenever it was
        ([lost("a", 9), lost("b", 9.5, SILENT)], up(*ABC), ("a",)),
        ([lost("a", 9, SILENT), lost("b", 9.5)], up(*ABC), ("b",)),
        # so does one offence than two
        ([lost("a", 1), lost("a", 2), lost("b", 3)], up(*ABC), ("a",)),
        # nobody else: a node that was lost just now, but is up
        ([lost("a", 10)], up("a", "b"), ()),
        # one that is down does not come back, another one's time is longer
        ([lost("a", 1), lost("b", 2)], up("b", "c", down="a"), ("a",)),
        # time passes
        ([lost("a", 8, SILENT)], up(*ABC, hour=8.9), ("a",)),
        ([lost("a", 8, SILENT)], up(*ABC, hour=9.1), ()),
        ([lost("a", 1)], up(*ABC, hour=24), ("a",)),
        ([lost("a", 1)], up(*ABC, hour=26), ()),
        # down, and nobody is to blame: the queue waits
        ([ending(Cause.PREEMPTED)], up("a", down="b"), ()),
        # b is to blame and up, c is neither: the queue waits for c rather than for ever
        ([lost("b", 9)], up("a", "b", worlds=(3,), down="c"), ()),
        ([lost("b", 9)], up("a", worlds=(2,), down="b c"), ("b",)),
    ],
)
def test_who_is_left_out_when_nodes_are_short(
    history: list[Ending], means: Means, excluding: tuple[str, ...]
) -> None:
    decision = decide(history, means)
    assert isinstance(decision, Resubmit), decision
    assert decision.excluding == excluding


def test_a_smaller_run_comes_before_a_blamed_node() -> None:
    history = [lost("a", 1), lost("b", 2)]
    assert decide(history, up(*ABC, worlds=(2, 1))) == Shrink("a node was lost on b", 1, ("a", "b"))
    both = decide([*history, lost("c", 3)], up(*ABC, worlds=(3, 2)))
    assert isinstance(both, Shrink)
    assert (both.nodes, both.excluding) == (2, ("c",))


def test_a_node_that_is_guilty_again_and_again_does_not_come_back() -> None:
    history = [lost("a", hour) for hour in (1, 2, 3)]
    assert decide(history[:2], up("a", "b")) == Resubmit(
        "a node was lost on a; for want of other nodes a may come back", ()
    )
    stopped = decide(history, up("a", "b"))
    assert isinstance(stopped, Stop)
    assert "1 nodes are left without a" in stopped.reason


def test_every_conviction_counts() -> None:
    first, second = lost("a", 1), lost("a", 2, SILENT)
    assert convictions([first, second]) == [Conviction("a", first), Conviction("a", second)]
    assert blamed([first, second]) == {"a": first}
    assert sentenced([first], HOUR_S) == {"a": HOUR_S + DAY_S}
    assert sentenced([second], 2 * HOUR_S) == {"a": 3 * HOUR_S}
    assert sentenced([second], HOUR_S) == {"a": 2 * HOUR_S}, "of a clock that is ahead"
    assert set(Cause) >= SOFT


def test_a_job_goes_on_with_the_nodes_that_it_was_given_for_want_of_others() -> None:
    """The supervisor took n2 back: a rank that dies is no reason to do without it again."""
    back = lost("n2", 1)
    means = INSIDE._replace(now=HOUR_S * 2)
    killed = replace(ending(Cause.RANK_KILLED, "n1", attempt=20), ended=HOUR_S * 2)
    assert decide([back, killed], means) == RestartInPlace("a rank was killed on n1")
    assert isinstance(decide([back, lost("n2", 2)], means), Resubmit)
    spare = means._replace(spares=("n3",))
    assert decide([back, lost("n2", 2)], spare) == UseSpare("a node was lost on n2", ("n2",))


@pytest.mark.parametrize(
    ("suspects", "gone", "spares", "wanted"),
    [
        (("n2",), ("n2",), ("n3",), UseSpare("a node fell silent on n2", ("n2",))),
        (("n2",), ("n2",), (), Resubmit("a node fell silent on n2; no spare node left", ("n2",))),
        # nobody is suspected, but without their agents they are of no use
        ((), NODES, ("n3",), Resubmit("a node fell silent; no spare node left", ())),
        ((), NODES, ("n3", "n4"), UseSpare("a node fell silent", NODES)),
        (("n1",), ("n2",), (), Resubmit("a node fell silent on n1; no spare node left", ("n1",))),
    ],
)
def test_nodes_that_fell_silent_are_of_no_use_to_their_job(
    suspects: tuple[str, ...], gone: tuple[str, ...], spares: tuple[str, ...], wanted: Decision
) -> None:
    silent = ending(Cause.NODE_SILENT, *suspects)
    assert decide([silent], INSIDE._replace(lost=gone, spares=spares)) == wanted


def test_agents_that_do_not_come_up_end_the_run_after_three_attempts() -> None:
    none = [ending(Cause.NOT_STARTED, attempt=at, error="srun ended with 1") for at in (1, 2, 3)]
    assert decide(none[:2], up("n1", "n2")) == Resubmit(
        "the node agents did not come up: srun ended with 1", ()
    )
    stopped = decide(none, up("n1", "n2"))
    assert isinstance(stopped, Stop)
    assert "srun ended with 1" in stopped.reason and "in the training itself" not in stopped.reason


def test_a_bug_stops_after_three_endings_and_blames_no_node() -> None:
    """The same exception wherever it runs: at 7 of 8 bytes, then 9 of 8, whatever its numbers."""
    history = [failed("n2", 1, "ValueError: row 7")]
    assert type(decide(history, WITH_SPARE)) is RestartInPlace
    history += [failed("n2", 2, "ValueError: row 9")]
    assert decide(history, WITH_SPARE) == UseSpare(
        "a rank failed on n2: ValueError: row 9", ("n2",)
    )
    history += [failed("n3", 3, "ValueError: row 7", nodes=("n1", "n3"))]
    stopped = decide(history, WITH_SPARE)
    assert isinstance(stopped, Stop)
    assert "on different nodes" in stopped.reason and "no node is blamed" in stopped.reason
    assert blamed(history) == {} and avoided(history) == ()


def test_a_node_on_trial_is_blamed_when_the_run_goes_on_without_it() -> None:
    history = [failed("n2", 1), failed("n2", 2)]
    assert avoided(history) == ("n2",) and blamed(history) == {}
    history += [ending(Cause.STOPPED, attempt=2, nodes=("n1", "n3"), gained=10)]
    assert blamed(history) == {"n2": history[1]}
    assert avoided(history) == ("n2",)


def test_a_trial_is_waived_where_no_other_node_is_left() -> None:
    history = [failed("n2", 1), failed("n2", 2)]
    two = OUTSIDE._replace(usable=frozenset(NODES))
    assert decide(history, two) == Resubmit("a rank failed on n2: ValueError: no", ())
    three = OUTSIDE._replace(usable=frozenset({*NODES, "n3"}))
    assert decide(history, three) == Resubmit("a rank failed on n2: ValueError: no", ("n2",))


def test_different_errors_on_different_nodes_put_nobody_on_trial() -> None:
    assert avoided([failed("n1", 1), failed("n2", 2)]) == ()
    assert avoided([failed("n2", 1, gained=5), failed("n2", 2)]) == (), "it got on in between"


def test_progress_resets_the_count() -> None:
    killed = ending(Cause.RANK_KILLED, "n1")
    further = replace(killed, newest_step=99)
    assert type(decide([killed, killed, further, killed], INSIDE)) is RestartInPlace
    assert (
        type(decide([further, killed, replace(killed, suspects=("n2",)), killed], INSIDE)) is Stop
    )


def test_budgets() -> None:
    further = ending(Cause.RANK_KILLED, "n1", gained=1)
    history = [replace(further, generation=at) for at in (1, 2, 3)]
    assert type(decide(history, INSIDE, Limits(restarts=3))) is RestartInPlace
    assert type(decide(history, INSIDE, Limits(restarts=2))) is Resubmit
    jobs = [replace(further, attempt=at) for at in (1, 2, 3)]
    assert type(decide(jobs, OUTSIDE, Limits(attempts=4))) is Resubmit
    assert type(decide(jobs, OUTSIDE, Limits(attempts=3))) is Stop
    assert type(decide(jobs, INSIDE, Limits(attempts=3))) is RestartInPlace, "costs no new job"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("IndexError: row 17 of 20", "IndexError: row 3 of 20"),
        ("RuntimeError: at 0x7f00aa", "RuntimeError: at 0x12"),
    ],
)
def test_errors_are_compared_without_their_numbers(one: str, other: str) -> None:
    assert error_signature(one) == error_signature(other)


CLUSTER = tuple(f"n{number}" for number in range(1, 9))
causes = st.sampled_from([cause for cause in Cause if cause is not Cause.DONE])


class World:
    """Plays a run: endings are drawn, decisions obeyed."""

    def __init__(self, draw: st.DataObject, spares: int, *, elastic: bool) -> None:
        self.draw = draw
        self.spares = spares
        self.worlds = (2, 1) if elastic else (2,)
        self.history: list[Ending] = []
        self.submissions: list[tuple[str, ...]] = []

    def play(self, limits: Limits) -> Stop:
        excluding: tuple[str, ...] = ()
        size, attempt = self.worlds[0], 1
        while True:
            self.submissions.append(excluding)
            free = [node for node in CLUSTER if node not in excluding]
            decision = self.job(attempt, free[:size], free[size : size + self.spares], limits)
            assert not isinstance(decision, (RestartInPlace, UseSpare)), "there is no allocation"
            if isinstance(decision, Stop):
                return decision
            if isinstance(decision, KeepWaiting):
                return Stop(decision.reason)
            excluding = decision.excluding
            size = decision.nodes if isinstance(decision, Shrink) else self.worlds[0]
            attempt += 1

    def job(self, attempt: int, active: list[str], spares: list[str], limits: Limits) -> Decision:
        usable = frozenset(CLUSTER)
        for generation in range(1, limits.restarts + 3):
            self.history.append(self.end(attempt, generation, active))
            inside = Means(True, tuple(spares), self.worlds)
            decision = decide(self.history, inside, limits)
            if isinstance(decision, UseSpare):
                for node in decision.replaced:
                    spare = next(one for one in spares if one not in avoided(self.history))
                    spares.remove(spare)
                    active = [spare if one == node else one for one in active]
            elif not isinstance(decision, RestartInPlace):
                outside = Means(worlds=self.worlds, waiting=len(active), usable=usable)
                return decide(self.history, outside, limits)
            fresh = {node for node, one in convictions(self.history) if one.attempt == attempt}
            assert not set(active) & fresh, "a blamed node goes on"
        raise AssertionError("restarts without end")

    def end(self, attempt: int, generation: int, active: Sequence[str]) -> Ending:
        cause = self.draw.draw(causes)
        suspects = tuple(self.draw.draw(st.sets(st.sampled_from(active), max_size=2)))
        return ending(
            cause,
            *suspects,
            attempt=attempt,
            generation=generation,
            nodes=tuple(active),
            gained=self.draw.draw(st.sampled_from([0, 0, 1])),
            error=self.draw.draw(st.sampled_from(["", "E: 1", "F: 2"])),
        )


@given(data=st.data(), spares=st.integers(0, 2), elastic=st.booleans())
def test_every_run_ends_and_no_job_gets_a_blamed_node(
    data: st.DataObject, spares: int, elastic: bool
) -> None:
    limits = Limits(attempts=4, restarts=5)
    world = World(data, spares, elastic=elastic)
    assert world.play(limits).reason
    # Jobs that only waited in the queue come on top, one for each smaller number of nodes.
    assert len(world.submissions) <= limits.attempts * len(world.worlds)
    for at, submission in enumerate(world.submissions):
        before = [ending for ending in world.history if ending.attempt <= at]
        if before:
            back = set(blamed(before)) - set(submission)
            least = world.worlds[-1]
            assert not back or len(CLUSTER) - len(blamed(before)) < least, "others were there"
            assert len(CLUSTER) - len(submission) == least or not back, "more than it takes"


@given(
    data=st.data(),
    cause=st.sampled_from([Cause.RANK_FAILED, Cause.RANK_KILLED, Cause.HUNG]),
    spares=st.integers(0, 2),
)
def test_a_bug_that_strikes_every_time_blames_nobody(
    data: st.DataObject, cause: Cause, spares: int
) -> None:
    """One rank, say the second, fails at the same row wherever it runs."""

    class Buggy(World):
        def end(self, attempt: int, generation: int, active: Sequence[str]) -> Ending:
            return ending(
                cause, active[1], attempt=attempt, generation=generation, nodes=tuple(active),
                error="ValueError: row 3",
            )  # fmt: skip

    world = Buggy(data, spares, elastic=False)
    world.play(Limits())
    assert len(world.history) == 3
    assert blamed(world.history) == {}
    assert len({ending.suspects for ending in world.history}) == 2, "it was tried elsewhere"


@given(st.lists(st.tuples(causes, st.sets(st.sampled_from(NODES)), st.integers(0, 1)), min_size=1))
def test_the_decision_is_a_function_of_the_history(
    drawn: list[tuple[Cause, set[str], int]],
) -> None:
    history = [
        ending(cause, *sorted(suspects), attempt=at, gained=gained)
        for at, (cause, suspects, gained) in enumerate(drawn, 1)
    ]
    for means in (INSIDE, WITH_SPARE, OUTSIDE, ELASTIC):
        decision = decide(history, means)
        assert decision == decide(list(history), means)
        if isinstance(decision, UseSpare):
            assert set(decision.replaced) <= set(avoided(history))
        if isinstance(decision, (Resubmit, Shrink)):
            assert set(blamed(history)) <= set(decision.excluding)

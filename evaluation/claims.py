"""What may be said of one model against another: "twice the accuracy" and its two honest kin.

    for claim in claims(effects(base, tuned, clusters), mean_interval(base, clusters)):
        claim.name, claim.state, claim.reason

A claim is `shown` when the whole 95 % interval supports it, `refuted` when the whole interval
speaks against it, else `not shown`. It is `refused`, with its reason, where the benchmark leaves
no room for it: twice 63 % is 126 %, which no model can reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evaluation.effects import Effect, Effects
from evaluation.statistics import Interval

TWICE_ACCURACY = "twice the accuracy"
TWICE_ODDS = "twice the odds"
HALF_ERRORS = "half the errors"

State = Literal["shown", "not shown", "refuted", "refused"]


@dataclass(frozen=True)
class Claim:
    """A claim, whether it holds, and why."""

    name: str
    state: State
    reason: str


def claims(found: Effects, before: Interval, *, ceiling: float = 1.0) -> list[Claim]:
    """The three claims about a model whose effects over a baseline of `before` were `found`.

    `ceiling` is the highest score that the benchmark gives to right answers.
    """
    return [
        twice_the_accuracy(found.ratio, before, ceiling),
        _judge(TWICE_ODDS, found.odds_ratio, 2.0, "odds ratio", "{:.2f}"),
        _judge(HALF_ERRORS, found.error_reduction, 0.5, "share of errors gone", "{:.1%}"),
    ]


def twice_the_accuracy(ratio: Effect | None, before: Interval, ceiling: float) -> Claim:
    """The claim that accuracy doubled over a baseline of `before`."""
    refusal = no_room_for_twice(before.value, ceiling)
    if refusal:
        return Claim(TWICE_ACCURACY, "refused", refusal)
    if ratio is None:
        return Claim(
            TWICE_ACCURACY, "refused", "the baseline solves nothing: a ratio to 0 means nothing"
        )
    claim = _judge(TWICE_ACCURACY, ratio, 2.0, "ratio", "{:.2f}")
    if claim.state == "not shown" and 2 * before.high > ceiling:
        return Claim(
            TWICE_ACCURACY,
            "refused",
            f"the baseline lies between {before.low:.1%} and {before.high:.1%}, and twice "
            f"{before.high:.1%} is above the ceiling of {ceiling:.1%}: the claim would rest on "
            "the luck of the baseline's draw",
        )
    return claim


def no_room_for_twice(before: float, ceiling: float) -> str:
    """Why twice `before` cannot be reached on a benchmark with this `ceiling`; empty if it can."""
    if 2 * before <= ceiling:
        return ""
    return (
        f"twice {before:.1%} is {2 * before:.1%}, above the ceiling of {ceiling:.1%}: at most "
        f"{ceiling / before:.2f} times is possible"
    )


def _judge(name: str, effect: Effect | None, wanted: float, measure: str, form: str) -> Claim:
    if effect is None:
        return Claim(name, "refused", "a model solves nothing or everything: no ratio exists")
    low = "unbounded" if effect.low is None else form.format(effect.low)
    high = "unbounded" if effect.high is None else form.format(effect.high)
    reason = f"{measure} {form.format(effect.value)}, 95 % interval {low} to {high}"
    if effect.low is not None and effect.low >= wanted:
        return Claim(name, "shown", reason)
    if effect.high is not None and effect.high < wanted:
        return Claim(name, "refuted", reason)
    return Claim(name, "not shown", reason)

"""Where to take two models' answers to a benchmark from, so that they may be compared.

    pair = find_pair(evaluations, "rtl_completion", candidate, reference)
    pair.candidate.evaluation, pair.candidate.label

Models are known by the hash of their weights: a label may have meant another model before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from evaluation.identity import identity_of
from evaluation.models import ScoredModel
from evaluation.published import Evaluation
from workspace.errors import MissingInputError, UserError


class NotComparableError(UserError):
    """Two scores differ in more than the model; the message names the field."""


class Side(NamedTuple):
    """An evaluation, and what the model is called in it."""

    evaluation: Evaluation
    label: str


class Pair(NamedTuple):
    """Where each of the two models was scored."""

    candidate: Side
    reference: Side


def find_pair(
    evaluations: Sequence[Evaluation],
    benchmark: str,
    candidate: ScoredModel,
    reference: ScoredModel,
) -> Pair:
    """The newest evaluation that holds both, else the newest of each if they are comparable.

    Raises `MissingInputError` when one was not scored, `NotComparableError` naming the fields.
    """
    of_candidate = list(_sides(evaluations, benchmark, candidate))
    of_reference = list(_sides(evaluations, benchmark, reference))
    for model, sides in ((candidate, of_candidate), (reference, of_reference)):
        if not sides:
            raise MissingInputError(
                f"{model.label} was not scored on {benchmark}: score {candidate.label} and "
                f"{reference.label} on it by `python -m flows.score`, or leave it out of --guards"
            )
    for first in of_candidate:
        for second in of_reference:
            if first.evaluation.folder == second.evaluation.folder:
                return Pair(first, second)
    for second in of_reference:
        if not _differences(benchmark, of_candidate[0], second):
            return Pair(of_candidate[0], second)
    found = _differences(benchmark, of_candidate[0], of_reference[0])
    raise NotComparableError(
        f"{benchmark}: {candidate.label} (evaluation {of_candidate[0].evaluation.summary.id}) and "
        f"{reference.label} (evaluation {of_reference[0].evaluation.summary.id}) differ in "
        f"{'; '.join(found)}. Score both again in one run"
    )


def _sides(evaluations: Sequence[Evaluation], benchmark: str, model: ScoredModel) -> Iterator[Side]:
    for evaluation in evaluations:
        known = evaluation.model(model.hash)
        if known and evaluation.result(benchmark):
            yield Side(evaluation, known.label)


def _differences(benchmark: str, first: Side, second: Side) -> list[str]:
    one, other = (side.evaluation.result(benchmark) for side in (first, second))
    assert one is not None
    assert other is not None
    return identity_of(first.evaluation, one).differences(identity_of(second.evaluation, other))

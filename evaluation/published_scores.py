"""Scores that others published, each with its source: reference rows beside what is measured here.

    for score in read_published().of("verilog_eval_v2_spec_to_rtl"):
        score.model, score.value, score.source, score.twice

They were made by upstream's rules with simulators and prompts that differ from ours, so they are
shown and never ranked. To add one: a line in `published_scores.yaml`.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from evaluation.claims import no_room_for_twice
from workspace.config import describe_validation_error, read_yaml
from workspace.errors import UserError

PATH = Path(__file__).with_suffix(".yaml")


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PublishedScore(_Entry):
    """A score as its authors gave it, in [0, 1]."""

    model: str
    benchmark: str
    metric: str
    value: float
    source: str
    twice: str  # why no model can score twice as much; empty when one could


class _Line(_Entry):
    model: str = Field(min_length=1)
    metric: str = Field(pattern=r"^(pass@[1-9]\d*|accuracy)$")
    percent: float = Field(gt=0, le=100)
    source: str


class _Ceiling(_Entry):
    percent: float = Field(gt=0, le=100)
    why: str = Field(min_length=1)


class PublishedScores(_Entry):
    """All of a file."""

    version: int
    ceilings: dict[str, _Ceiling]
    sources: dict[str, str]
    scores: dict[str, list[_Line]]

    @model_validator(mode="after")
    def _sources_are_known(self) -> Self:
        for benchmark, lines in self.scores.items():
            for line in lines:
                if line.source not in self.sources:
                    raise ValueError(f"{benchmark}, {line.model}: no source {line.source!r}")
        return self

    @property
    def benchmarks(self) -> list[str]:
        """In the file's order."""
        return list(self.scores)

    def of(self, benchmark: str) -> list[PublishedScore]:
        """The scores on `benchmark`, by metric, the best first."""
        ceiling = self.ceiling(benchmark)
        found = [
            PublishedScore(
                model=line.model,
                benchmark=benchmark,
                metric=line.metric,
                value=line.percent / 100,
                source=self.sources[line.source],
                twice=no_room_for_twice(line.percent / 100, ceiling),
            )
            for line in self.scores.get(benchmark, [])
        ]
        return sorted(found, key=lambda score: (score.metric, -score.value, score.model))

    def ceiling(self, benchmark: str) -> float:
        """The most that upstream's own references score on `benchmark` by upstream's rules."""
        known = self.ceilings.get(benchmark)
        return known.percent / 100 if known else 1.0


@functools.cache
def read_published(path: Path = PATH) -> PublishedScores:
    """Read a file of published scores. Raises `UserError` naming each wrong line."""
    try:
        return PublishedScores.model_validate(read_yaml(path))
    except ValidationError as error:
        raise UserError(describe_validation_error(error, str(path))) from error

"""What is known to be wrong with the problems, and what the audited score does about it.

`errata.yaml` beside this file, versioned: its version is part of a score's identity. Effects:

    exclude          the problem is left out of the audited score
    forgive_first    mismatches in the first `samples` samples do not count (power-on values that
                     the prompt does not mention)
    note             nothing: shown with the result
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from workspace.errors import UserError

_Said = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

PATH = Path(__file__).with_name("errata.yaml")


class Erratum(BaseModel):
    """One problem of one or more benchmarks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    benchmarks: tuple[str, ...] = Field(min_length=1)
    problem: str = Field(min_length=1)
    effect: Literal["exclude", "forgive_first", "note"]
    samples: int = Field(0, ge=0, description="of forgive_first")
    simulators: tuple[str, ...] = Field((), description="prefixes of versions; none: all")
    what: _Said
    evidence: _Said = Field(description="what was run or read that shows it")


class Errata(BaseModel):
    """All of them."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    errata: tuple[Erratum, ...]

    def of(self, benchmark: str, simulator: str) -> dict[str, list[Erratum]]:
        """By problem, those that hold for a benchmark on a simulator."""
        found: dict[str, list[Erratum]] = {}
        for erratum in self.errata:
            if benchmark in erratum.benchmarks and (
                not erratum.simulators or simulator.startswith(erratum.simulators)
            ):
                found.setdefault(erratum.problem, []).append(erratum)
        return found


def read_errata(path: Path = PATH) -> Errata:
    """Read an errata file. `UserError` names what is wrong with it."""
    try:
        return Errata.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise UserError(f"errata file {path}: {error}") from error

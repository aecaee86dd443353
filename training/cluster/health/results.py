"""What a health check says of a node, on a ladder of five severities."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class Severity(IntEnum):
    """How bad it is, by what should follow."""

    OK = 0
    UNSEEN = 1  # could not be looked at: nothing is known, jobs may start here
    WARN = 2  # worth a look; jobs may start here
    DRAIN = 3  # no new job; a running one may go on
    ISOLATE = 4  # no new job, and what runs here cannot be trusted

    @property
    def label(self) -> str:
        return self.name.lower()


class Verdict(NamedTuple):
    """A measurement judged: how bad, why, and what to do about it."""

    severity: Severity
    detail: str
    cure: str = ""


@dataclass(frozen=True)
class CheckResult:
    """One check of one node."""

    check: str
    severity: Severity
    detail: str
    cure: str = ""
    seconds: float = 0.0

    def describe(self) -> str:
        """For example `disk: drain: /tmp is full (0.4 % free); remove files`."""
        return "; ".join(
            filter(None, (f"{self.check}: {self.severity.label}: {self.detail}", self.cure))
        )

    def as_json(self) -> dict[str, object]:
        return {
            "check": self.check,
            "severity": self.severity.label,
            "detail": self.detail,
            "cure": self.cure,
            "seconds": round(self.seconds, 3),
        }

    @classmethod
    def from_json(cls, values: dict[str, object]) -> CheckResult:
        """The inverse of `as_json`."""
        return cls(
            str(values["check"]),
            Severity[str(values["severity"]).upper()],
            str(values["detail"]),
            str(values["cure"]),
            float(str(values["seconds"])),
        )


def worst(severities: Iterable[Severity]) -> Severity:
    """The highest of them; OK when there is none."""
    return max(severities, default=Severity.OK)


def combine(verdicts: Iterable[Verdict], fine: str) -> Verdict:
    """One verdict of several: the worst first; `fine` is said when none is above OK."""
    bad = sorted((v for v in verdicts if v.severity > Severity.OK), key=lambda v: -v.severity)
    if not bad:
        return Verdict(Severity.OK, fine)
    cures = dict.fromkeys(verdict.cure for verdict in bad if verdict.cure)
    return Verdict(bad[0].severity, "; ".join(verdict.detail for verdict in bad), "; ".join(cures))


def drain_reason(results: Iterable[CheckResult]) -> str:
    """The reason to show in `sinfo -R`, at most 200 characters; "" when no check asks for it."""
    severe = [r for r in results if r.severity >= Severity.DRAIN]
    severe.sort(key=lambda result: -result.severity)
    text = "; ".join(f"{result.check}: {result.detail}" for result in severe)
    return f"{REASON_PREFIX} {text}"[:200] if text else ""


REASON_PREFIX = "dsm-health:"

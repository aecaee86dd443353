"""A decision of the gate for a terminal."""

from __future__ import annotations

from evaluation.gate import Decision, GateConfig, decide, settled
from flows._summary import Summary


def preview(config: GateConfig) -> str:
    """What the gate would decide."""
    decision = settled(config) or decide(config)
    return "\n  ".join([_headline(decision, "would be promoted"), *decision.reasons])


def summarise(decision: Decision) -> Summary:
    """The decision with its reasons."""
    return Summary(
        headline=f"promote: {_headline(decision, 'promoted')}",
        notes=decision.reasons,
        declined=not decision.promoted,
    )


def _headline(decision: Decision, word: str) -> str:
    if decision.promoted and not decision.checks:
        return f"{decision.candidate} is promoted already, nothing to do"
    if decision.promoted:
        return f"{decision.candidate} {word}"
    failed = [check.benchmark for check in decision.checks if not check.passed]
    return f"{decision.candidate} not promoted over {decision.reference}: {', '.join(failed)}"

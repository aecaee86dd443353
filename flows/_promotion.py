"""A decision of the gate for a terminal."""

from __future__ import annotations

from evaluation.gate import Decision, GateConfig, decide
from flows._summary import Summary


def preview(config: GateConfig) -> str:
    """What the gate would decide."""
    decision = decide(config)
    return "\n  ".join([_headline(decision, "would be promoted"), *decision.reasons])


def summarise(decision: Decision) -> Summary:
    """The decision with its reasons."""
    return Summary(
        headline=f"promote: {_headline(decision, 'promoted')}",
        notes=decision.reasons,
        declined=not decision.promoted,
    )


def _headline(decision: Decision, word: str) -> str:
    if decision.promoted:
        return f"{decision.candidate} {word}"
    failed = [check.benchmark for check in decision.checks if not check.passed]
    return f"{decision.candidate} not promoted over {decision.reference}: {', '.join(failed)}"

"""Tasks of promotion: the gate's decision, and its reasons as a table."""

from __future__ import annotations

from prefect import task

from evaluation import gate
from tasks import artifacts
from tasks._markdown import code_cells
from tasks._options import task_options


@task(**task_options("promote", "gate", "promote {config.name}"))
def promote_candidate(config: gate.GateConfig) -> gate.Decision:
    """Decide about the candidate and write its stage into the registry."""
    return gate.promote(config)


def show_decision(decision: gate.Decision) -> None:
    """The reasons as a table on the run's page, a row each benchmark."""
    rows: list[dict[str, object]] = [
        {
            "benchmark": check.benchmark,
            "role": check.role,
            "passed": "yes" if check.passed else "no",
            decision.reference: f"{check.reference:.1%}",
            decision.candidate: f"{check.candidate:.1%}",
            "points": f"{100 * check.comparison.difference:+.1f}",
            "low": f"{100 * check.comparison.low:+.1f}",
            "high": f"{100 * check.comparison.high:+.1f}",
            "p": f"{check.comparison.p_value:.2g}",
            "reason": check.reason,
        }
        for check in decision.checks
    ]
    verdict = "promoted" if decision.promoted else "not promoted"
    artifacts.show_table(
        "promote",
        "reasons",
        code_cells(rows, "benchmark", "reason"),
        f"promote: {decision.candidate} {verdict}, and why",
    )

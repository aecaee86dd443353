"""A scored candidate -> the promoted model, if a paired gain is shown and no loss elsewhere.

python -m flows.promote --workspace DIR --target BENCHMARK
"""

from __future__ import annotations

import sys

from evaluation.gate import GateConfig, settled
from flows._cli import DeclinedError, Door, main
from flows._promotion import preview, summarise

DOOR = Door("promote", GateConfig, __doc__, settled, preview, summarise)

if __name__ == "__main__":
    sys.exit(main(DOOR))

# Prefect comes after the command line, which needs it only when there is work (flows/_cli.py).
from prefect import flow  # noqa: E402
from prefect.client.schemas.objects import State  # noqa: E402
from prefect.states import Failed  # noqa: E402

from evaluation.gate import Decision  # noqa: E402
from flows._options import flow_options  # noqa: E402
from tasks.promote import promote_candidate, show_decision  # noqa: E402


@flow(**flow_options("promote", "promote {config.name} for {config.target}"))
def promote(config: GateConfig) -> Decision | State[Decision]:
    """Compare a candidate with the promoted model and promote it, or end as NotPromoted."""
    decision = promote_candidate(config)
    show_decision(decision)
    if decision.promoted:
        return decision
    message = summarise(decision).headline
    return Failed(name="NotPromoted", message=message, data=DeclinedError(message, decision))

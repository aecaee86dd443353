"""Whether somebody cancelled the flow run that this process works for."""

from __future__ import annotations

import logging
import time
from typing import Any
from uuid import UUID

import prefect.runtime.flow_run
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State

log = logging.getLogger(__name__)

CHECK_EVERY_S = 5.0


class CancellationCheck:
    """Whether somebody cancelled this flow run or the one that started it; asks now and then."""

    def __init__(self, every_s: float = CHECK_EVERY_S) -> None:
        run = prefect.runtime.flow_run
        self._ids = {UUID(str(i)) for i in (run.id, run.root_flow_run_id) if i}
        self._every_s = every_s
        self._last = time.monotonic()

    def __call__(self) -> bool:
        if time.monotonic() - self._last < self._every_s:
            return False
        self._last = time.monotonic()
        return self.now()

    def now(self) -> bool:
        """Ask the API; a server that does not answer has cancelled nothing."""
        try:
            with get_client(sync_client=True) as client:
                states = [client.read_flow_run(run_id).state for run_id in self._ids]
        except Exception as error:  # of HTTP, of the API: work goes on without Prefect
            log.warning("cannot ask whether the flow run was cancelled: %s", error)
            return False
        return any(_is_cancelled(state) for state in states)


def _is_cancelled(state: State[Any] | None) -> bool:
    return state is not None and (state.is_cancelling() or state.is_cancelled())

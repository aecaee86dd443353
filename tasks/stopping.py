"""Whether somebody cancelled or suspended the flow run of this process, and how it ends then.

*Cancel* and *Suspend* in the UI only change the flow run's state. The work asks for it now and then
(`StopCheck`), saves and raises an error; `stopped` says what the flow run becomes. A suspended one
ends its process, and with it what it holds of the machine or the cluster; *Resume* has a worker
start it again, and it goes on from what is on disk.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import prefect.runtime.flow_run
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterParentFlowRunId,
    FlowRunFilterState,
    FlowRunFilterStateType,
)
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import Pause
from prefect.states import Cancelled

from workspace.stage import StageResult

log = logging.getLogger(__name__)

CHECK_EVERY_S = 5.0
WAITS = "WaitsForParent"  # name of the state of a part of a suspended flow run


class StopCheck:
    """Whether this flow run, or the one that started it, should stop; asks now and then."""

    def __init__(self, every_s: float = CHECK_EVERY_S) -> None:
        self._every_s = every_s
        self._last = time.monotonic()

    def __call__(self) -> bool:
        if time.monotonic() - self._last < self._every_s:
            return False
        self._last = time.monotonic()
        return self.now()

    def now(self) -> bool:
        """Ask the API; a server that does not answer has stopped nothing."""
        try:
            with get_client(sync_client=True) as client:
                return any(is_cancelled(s) or is_suspended(s) for s in _own_states(client))
        except Exception as error:  # of HTTP, of the API: work goes on without Prefect
            log.warning("cannot ask whether the flow run should stop: %s", error)
            return False


def stopped(why: str) -> State[Any]:
    """The state of a flow whose work ended because it was told to: cancelled.

    Raises `Pause`, which ends the process without another state, when it was suspended.
    """
    with get_client(sync_client=True) as client:
        for state in _own_states(client):
            if is_suspended(state):
                log.info("suspended: %s", why)
                raise Pause(state=state)
    # A plain return would leave a cancelled run `Cancelling` for ever.
    return Cancelled(message=why)


def finished(result: StageResult | State[StageResult]) -> StageResult:
    """What a flow returned. Prefect raised it already if it was a state."""
    assert isinstance(result, StageResult)
    return result


def rest_parts() -> None:
    """Show the parts of this suspended flow run as waiting: Prefect leaves them `Running`.

    A resumed flow run goes on with the same parts.
    """
    own = UUID(str(prefect.runtime.flow_run.id))
    running = FlowRunFilter(
        parent_flow_run_id=FlowRunFilterParentFlowRunId(any_=[own]),
        state=FlowRunFilterState(type=FlowRunFilterStateType(any_=[StateType.RUNNING])),
    )
    waits = State[Any](
        type=StateType.PENDING, name=WAITS, message="goes on when the pipeline is resumed"
    )
    with get_client(sync_client=True) as client:
        for part in client.read_flow_runs(flow_run_filter=running):
            client.set_flow_run_state(part.id, waits, force=True)


def is_cancelled(state: State[Any] | None) -> bool:
    """Also when it is about to be."""
    return state is not None and (state.is_cancelling() or state.is_cancelled())


def is_suspended(state: State[Any] | None) -> bool:
    """Whether it waits for *Resume* and wants no process meanwhile; a plain pause keeps its own."""
    return state is not None and state.is_paused() and bool(state.state_details.pause_reschedule)


def _own_states(client: SyncPrefectClient) -> Iterator[State[Any] | None]:
    """Of this flow run, and of the one at the top of it."""
    run = prefect.runtime.flow_run
    for flow_run in {UUID(str(i)) for i in (run.id, run.root_flow_run_id) if i}:
        yield client.read_flow_run(flow_run).state

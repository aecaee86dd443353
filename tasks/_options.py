"""Options that all our Prefect tasks share.

Truth is on disk: a re-run skips published and half-done work by itself, so Prefect's cache and
result storage stay off. Retries are for errors typed as transient, nothing else.
"""

from __future__ import annotations

from typing import Any

from prefect import Task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import exponential_backoff

from workspace.errors import TransientError


def is_transient(task: Task[..., Any], run: TaskRun, state: State[Any]) -> bool:
    """Whether a failed task run is worth another try."""
    outcome = state.result(raise_on_failure=False)
    return isinstance(outcome, TransientError)


def task_options(stage: str, step: str, run_name: str) -> dict[str, Any]:
    """Keyword arguments for `prefect.task`. No timeout: a thread cannot be interrupted, so the
    libraries bound each document in a child process that can be killed."""
    return {
        "name": f"{stage}-{step}",
        "task_run_name": run_name,
        "tags": ["dsm", f"stage:{stage}"],
        "retries": 3,
        "retry_delay_seconds": exponential_backoff(10),
        "retry_jitter_factor": 0.5,
        "retry_condition_fn": is_transient,
        "cache_policy": NO_CACHE,
        "persist_result": False,
    }

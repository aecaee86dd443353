"""The experiments: each injects one kind of fault and returns what came of it.

An experiment raises `LabError` when the outcome is wrong (a sample lost, a bad node used again);
its figures are seconds and counts. Its second argument asks for few repetitions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.chaos import (
    alerts,
    control,
    endurance,
    jobs,
    measured,
    memory,
    nodes,
    prefect_kills,
    ranks,
    real_trainer,
)
from benchmarks.chaos.lab import Lab
from benchmarks.chaos.result import Result


class Experiment(NamedTuple):
    key: str
    about: str
    play: Callable[[Lab, bool], list[Result]]


EXPERIMENTS = (
    Experiment("C1", "a rank is killed", ranks.rank_kill),
    Experiment("C2", "a node dies, the allocation has a spare", nodes.node_death_with_spare),
    Experiment("C3", "a node dies, no spare", nodes.node_death_without_spare),
    Experiment("shrink", "a node dies, no other is free", nodes.no_node),
    Experiment("queued", "a job dies, the next one waits behind it", control.queued_successor),
    Experiment("C4", "random kills of a real trainer", real_trainer.random_kills),
    Experiment("C5", "other numbers of ranks", measured.resharding),
    Experiment("C6", "kills in a save", measured.kills_in_saves),
    Experiment("C7", "a rank hangs", ranks.hangs),
    Experiment("C8", "the time limit comes", control.walltime),
    Experiment("C9", "a deterministic bug", ranks.bug),
    Experiment("C10", "a rank is slow", ranks.straggler),
    Experiment("C11a", "the supervisor is killed", control.supervisor_kill),
    Experiment("C11b", "slurmctld is killed", control.slurmctld_kill),
    Experiment("C11c", "the Prefect flow is killed", prefect_kills.flow_kill),
    Experiment("C11d", "the Prefect server is killed", prefect_kills.server_kill),
    Experiment("C11e", "the Prefect worker is killed", prefect_kills.worker_kill),
    Experiment("C12", "a zombie writes", nodes.zombie_writer),
    Experiment("C13", "storage fails", jobs.storage),
    Experiment("C14", "memory leaks", memory.leak),
    Experiment("C15", "a soak", endurance.soak),
    Experiment("C16", "asynchronous saves", measured.saves_meanwhile),
    Experiment("C17", "the planner's predictions", measured.planning),
    Experiment("C18", "alerts", alerts.alerts),
    Experiment("C19", "nasty strings", jobs.nasty_strings),
    Experiment("C20", "overhead", endurance.overhead),
    Experiment("pair", "two jobs on one node", jobs.two_jobs_on_one_node),
)

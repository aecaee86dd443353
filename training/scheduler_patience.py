"""Waiting for a scheduler that does not answer: restarted, failed over, or behind a dead network.

    patience = Patience(pause_s=5.0)
    handle = patience.answer(lambda: launcher.submit(job), log, waiting)

The call is made again, after longer and longer pauses, until it is answered; only `TransientError`
counts as silence. The run's story has a line when the silence begins and one when it ends.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final, TypeVar

from training.run_events import EventLog
from workspace.errors import TransientError

LONGEST_PAUSE_S: Final = 60.0  # between two tries
SILENT: Final = "scheduler_silent"
BACK: Final = "scheduler_back"

AnswerT = TypeVar("AnswerT")


class Patience:
    """Of one supervisor with one scheduler. `pause_s`: the first pause, and how often a waiting
    caller is asked whether to go on."""

    def __init__(
        self,
        pause_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._pause_s = pause_s
        self._clock = clock
        self._sleep = sleep
        self._since: float | None = None  # when the silence began

    @property
    def waits(self) -> bool:
        """Whether the last call was not answered."""
        return self._since is not None

    def answer(
        self,
        call: Callable[[], AnswerT],
        log: EventLog,
        waiting: Callable[[str], None],
        *,
        within_s: float = math.inf,
    ) -> AnswerT:
        """What `call` returns, once it is answered. `waiting` is told why, again and again; what it
        raises ends the wait. Raises `TransientError` after `within_s`."""
        began, pause_s = self._clock(), self._pause_s
        while True:
            try:
                answered = call()
            except TransientError as error:
                said = self.silent(error, log)
                if self._clock() - began >= within_s:
                    raise
                self._rest(pause_s, said, waiting)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            else:
                self.heard(log)
                return answered

    def silent(self, error: TransientError, log: EventLog) -> str:
        """Take note that nobody answered; for people."""
        said = f"waiting for Slurm's controller: {error}"
        if self._since is None:
            self._since = self._clock()
            log.say(SILENT, said)
        return said

    def heard(self, log: EventLog) -> None:
        """Take note of an answer."""
        if self._since is not None:
            log.say(BACK, f"after {self._clock() - self._since:.0f} s")
            self._since = None

    def _rest(self, seconds: float, said: str, waiting: Callable[[str], None]) -> None:
        over = self._clock() + seconds
        waiting(said)
        while (left := over - self._clock()) > 0:
            self._sleep(min(left, self._pause_s))
            waiting(said)

"""The lines of a flow run on the console of the worker that started it, while that lives."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from prefect.logging.handlers import PrefectConsoleHandler


def outlive_the_console() -> None:
    """Let this process go on when whoever reads its output is gone.

    A worker reads its flow runs through a pipe. When it is killed, the next line would end the run
    as well: rich, which Prefect prints with, leaves the process at a broken pipe. The lines still
    go to the run's page. Call after Prefect has set logging up.
    """
    for handler in _console_handlers():
        handler.console.on_broken_pipe = _print_no_more  # type: ignore[method-assign]


def _print_no_more() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _console_handlers() -> Iterator[PrefectConsoleHandler]:
    known = [logging.getLogger(), *logging.getLogger().manager.loggerDict.values()]
    for logger in known:
        if isinstance(logger, logging.Logger):
            for handler in logger.handlers:
                if isinstance(handler, PrefectConsoleHandler):
                    yield handler

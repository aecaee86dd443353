"""Progress of long work: a bar in a terminal, log lines with an ETA otherwise.

A `Progress` is called as `with progress("parsing", total, "documents") as advance: advance(n)`.
Libraries take one as an argument and know nothing of where it shows.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

log = logging.getLogger(__name__)

Advance = Callable[[int], None]


class Progress(Protocol):
    """Opens a counter of `total` units (0 when unknown)."""

    def __call__(self, label: str, total: int, unit: str) -> AbstractContextManager[Advance]: ...


@contextmanager
def quiet(label: str, total: int, unit: str) -> Iterator[Advance]:
    """Shows nothing."""
    yield lambda n: None


@contextmanager
def log_lines(
    label: str, total: int, unit: str, *, every_s: float = 15.0, logger: logging.Logger = log
) -> Iterator[Advance]:
    """A line at the start, the end and every `every_s` seconds, with the time that is left."""
    logger.info("%s: %s", label, f"{total} {unit} to do" if total else f"counting {unit}")
    start = last = time.monotonic()
    done = 0

    def advance(n: int) -> None:
        nonlocal done, last
        done += n
        now = time.monotonic()
        if now - last >= every_s:
            last = now
            logger.info("%s", describe(label, done, total, unit, now - start))

    yield advance
    logger.info("%s: %d %s in %s", label, done, unit, clock(time.monotonic() - start))


@contextmanager
def bar(label: str, total: int, unit: str) -> Iterator[Advance]:
    """A terminal bar on stderr."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as RichProgress

    columns = (
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with RichProgress(*columns, console=Console(stderr=True)) as shown:
        task = shown.add_task(label, total=total or None)
        yield lambda n: shown.advance(task, n)


def for_stream(*, lines: bool = True) -> Progress:
    """`bar` when stderr is a terminal, else `log_lines`, or nothing for who logs lines itself."""
    if sys.stderr.isatty():
        return bar
    return log_lines if lines else quiet


def describe(label: str, done: int, total: int, unit: str, elapsed_s: float) -> str:
    """For example `parsing: 120/400 documents (30 %), 4.0/s, 01:10 left`."""
    rate = done / elapsed_s if elapsed_s > 0 else 0.0
    if not total:
        return f"{label}: {done} {unit}, {rate:.1f}/s"
    left = clock((total - done) / rate) if rate > 0 else "?"
    return f"{label}: {done}/{total} {unit} ({100 * done // total} %), {rate:.1f}/s, {left} left"


def clock(seconds: float) -> str:
    """`mm:ss`, or `h:mm:ss` from an hour on."""
    whole = int(max(seconds, 0))
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"

"""`python -m flows.<name>`: command line in, exit code out, for every flow alike.

    if __name__ == "__main__":
        sys.exit(main(DOOR))

Prefect is imported only when there is work: `--help`, a usage error and a second run of published
work take about a second. Exit codes: 0 done, 1 failed, 2 bad usage, 3 done with quarantined inputs,
4 declined, 130 interrupted. Progress and log lines go to standard error, the summary to standard
out.
"""

from __future__ import annotations

import importlib
import logging
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from flows._api import PACKAGES, prefect_api
from flows._published import preview_stage, published_stage
from flows._summary import Summary, print_summary, summarise_stage
from workspace import disk_faults
from workspace.config import StageConfig
from workspace.errors import DsmError
from workspace.flags import FlagParser, UsageError
from workspace.stage import StageResult

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_QUARANTINED = 3
EXIT_DECLINED = 4
EXIT_INTERRUPTED = 130

EXIT_CODES = """\
exit codes: 0 done · 1 failed · 2 bad usage · 3 done, some inputs quarantined · 4 declined: a gate
said no · 130 interrupted.
A run that was stopped continues where it was when it is started again."""

ConfigT = TypeVar("ConfigT", bound=StageConfig)
ResultT = TypeVar("ResultT")


class DeclinedError(DsmError):
    """A flow did its work and the answer is no; `result` is what it would have returned.

    Raised by the failed state of such a flow, so that it ends red in the UI and with its own exit
    code here, and still prints its summary.
    """

    def __init__(self, message: str, result: Any) -> None:
        super().__init__(message)
        self.result = result


@dataclass(frozen=True)
class Door(Generic[ConfigT, ResultT]):
    """A flow as the command line sees it.

    `settled` returns the result of the same work done before, or None when there is work;
    `preview` says what a run would do.
    """

    name: str  # of the module in flows/ and of the flow in it
    config: type[ConfigT]
    about: str
    settled: Callable[[ConfigT], ResultT | None]
    preview: Callable[[ConfigT], str]
    summarise: Callable[[ResultT], Summary]
    module: str = ""  # default flows.<name>
    recipes: Path | None = None  # folder of YAML files for --recipe

    def flow(self) -> Callable[[dict[str, Any]], ResultT]:
        """The Prefect flow, called with the settings by name; importing it imports Prefect."""
        module = importlib.import_module(self.module or f"flows.{self.name}")
        flow: Callable[[dict[str, Any]], ResultT] = getattr(module, self.name)
        return flow


def stage_door(
    name: str,
    config: type[ConfigT],
    stage: Any,
    about: str,
    *,
    module: str = "",
    preview: Callable[[ConfigT], str] | None = None,
) -> Door[ConfigT, StageResult]:
    """The door of a flow that runs one stage; `stage` is its module (`workspace/stage.py`)."""

    return Door(
        name,
        config,
        about,
        settled=partial(published_stage, stage),
        preview=preview or partial(preview_stage, stage),
        summarise=summarise_stage(name),
        module=module,
    )


def main(door: Door[ConfigT, Any], arguments: Sequence[str] | None = None) -> int:
    """Run `door` for a command line; returns the exit code."""
    prog = f"python -m {door.module or f'flows.{door.name}'}"
    parser = FlagParser(prog, door.config, door.about, EXIT_CODES, recipes=door.recipes)
    _log_to_terminal()
    try:
        invocation = parser.parse(sys.argv[1:] if arguments is None else arguments)
        refuse_unfit_workspace(invocation.config)
        if invocation.dry_run:
            print(f"{door.name}: {door.preview(invocation.config)}")
            return EXIT_DONE
        return _run(door, invocation.config)
    except UsageError as error:
        _complain(door.name, str(error))
        return EXIT_USAGE
    except DsmError as error:
        _complain(door.name, str(error))
        return EXIT_FAILED
    except OSError as error:
        folder = getattr(invocation.config, "workspace", None) or Path.cwd()
        fault = disk_faults.explain(error, folder)
        if fault is None:
            raise
        _complain(door.name, str(fault))
        return EXIT_FAILED
    except KeyboardInterrupt:
        _complain(door.name, "interrupted: run the same command again to continue")
        return EXIT_INTERRUPTED


def _run(door: Door[ConfigT, Any], config: ConfigT) -> int:
    start = time.monotonic()
    result = door.settled(config)
    if result is None:
        with prefect_api(public=_needs_nodes(config)):
            result = _run_flow(door, config)
    summary = door.summarise(result)
    print_summary(summary, seconds=time.monotonic() - start)
    if summary.declined:
        return EXIT_DECLINED
    return EXIT_QUARANTINED if summary.quarantined else EXIT_DONE


def _run_flow(door: Door[ConfigT, ResultT], config: ConfigT) -> ResultT:
    from prefect.exceptions import CancelledRun

    try:
        # As plain values: started with `-m`, a file's own classes exist twice, in `__main__` and
        # in the module that the flow is imported from.
        return door.flow()(config.model_dump(exclude_unset=True))
    except DeclinedError as declined:
        result: ResultT = declined.result
        return result
    except CancelledRun as error:
        raise DsmError(f"cancelled: {error}") from error


def _needs_nodes(config: StageConfig) -> bool:
    """Whether tasks will run on other machines, which must reach the API."""
    own = getattr(config, "cluster", None) or getattr(
        getattr(config, "ingest", None), "cluster", None
    )
    return own not in (None, "local")


def refuse_unfit_workspace(config: StageConfig) -> None:
    """Raise `UsageError` for a file, for a path below one, and for the package `workspace/` of a
    checkout: it has the name that a workspace likes to have."""
    folder: Path | None = getattr(config, "workspace", None)
    if folder is None:
        return
    for place in (folder, *folder.parents):
        if place.exists() and not place.is_dir():
            raise UsageError(f"--workspace: {place} is no folder: give another")
    if (folder / "__init__.py").exists():
        raise UsageError(f"--workspace: {folder} holds the program itself: give another folder")


def _complain(name: str, text: str) -> None:
    for line in text.splitlines():
        print(f"{name}: {line}", file=sys.stderr)


class CurrentStderr(logging.StreamHandler[Any]):
    """Writes to `sys.stderr` as it is now: a progress bar replaces it while it is shown."""

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def _log_to_terminal() -> None:
    """Our packages' lines on standard error; beside a progress bar only their warnings."""
    root = logging.getLogger()
    if not any(isinstance(handler, CurrentStderr) for handler in root.handlers):
        handler = CurrentStderr()
        handler.setLevel(logging.WARNING if sys.stderr.isatty() else logging.INFO)
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", datefmt="%H:%M:%S"))
        root.addHandler(handler)
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.INFO)

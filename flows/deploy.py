"""`python -m flows.deploy`: the flows as deployments of a running Prefect server.

    python -m flows.deploy
    python -m flows.deploy train --config nightly.yaml --deployment chips --cron "0 22 * * *"

The first form registers every deployment of `prefect.yaml` and keeps what was set in the page; it
is what `python -m flows.serve` does at each start. The second gives one deployment the settings
that `python -m flows.FLOW` would take, checked as there, and makes it if it is new; done again, it
replaces them. The server is yours (`PREFECT_API_URL`), or that of a running `flows.serve`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flows._api import apply_environment, configured_api_url, served_api_url
from flows._cli import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, Door, refuse_unfit_workspace
from workspace.config import read_yaml
from workspace.environment import CHECKOUT
from workspace.errors import DsmError, UserError
from workspace.flags import FlagParser, UsageError

if TYPE_CHECKING:
    from prefect.client.schemas.schedules import CronSchedule


class Parser(argparse.ArgumentParser):
    """The flags of `deploy` itself; a flow's are left over."""

    def __init__(self) -> None:
        super().__init__(
            prog="python -m flows.deploy",
            usage="python -m flows.deploy [FLOW [--deployment NAME] [--cron EXPR] [--timezone TZ] "
            "[its settings …]] [--pool NAME]",
            description=(__doc__ or "").split(": ", 1)[1],
            epilog=f"flows: {', '.join(flow_names())}\n"
            "a flow's settings: python -m flows.deploy FLOW --help",
            allow_abbrev=False,
            add_help=False,
            formatter_class=partial(argparse.RawDescriptionHelpFormatter, max_help_position=30),
        )
        self.add_argument("--pool", metavar="NAME", default="dsm", help="work pool (default dsm)")
        self.add_argument(
            "--deployment", metavar="NAME", help="its name (default: as in prefect.yaml)"
        )
        self.add_argument("--cron", metavar="EXPR", help="its only schedule, switched on")
        self.add_argument("--timezone", metavar="TZ", help="of --cron (default UTC)")

    def error(self, message: str) -> Any:
        raise UsageError(message.removeprefix("argument "))


def main(arguments: Sequence[str] | None = None) -> int:
    """Register or set up; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if given and not given[0].startswith("-"):
            return _set_up(given[0].replace("-", "_"), given[1:])
        return _register(given)
    except DsmError as error:
        print(f"deploy: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, UsageError) else EXIT_FAILED


def _register(arguments: list[str]) -> int:
    parser = Parser()
    parser.add_argument("-h", "--help", action="help", help="show this text and stop")
    options = parser.parse_args(arguments)
    if options.deployment or options.cron or options.timezone:
        raise UsageError("--deployment, --cron and --timezone are for one flow: name it first")
    _choose_server()
    from prefect.client.orchestration import get_client

    from flows._deployments import make_pool, register

    with get_client(sync_client=True) as client:
        make_pool(client, options.pool)
        done = register(client, options.pool)
    print(f"{len(done.new)} deployments made, {len(done.known)} kept as set in the page")
    for line in done.unfit:
        print(f"its settings no longer fit, correct them in the page: {line}")
    return EXIT_DONE


def _set_up(flow: str, arguments: list[str]) -> int:
    if flow not in flow_names():
        raise UsageError(f"{flow!r} is no flow: there are {', '.join(flow_names())}")
    options, rest = Parser().parse_known_args(arguments)
    if Path.cwd() != CHECKOUT:
        raise UsageError(f"run this in {CHECKOUT}: a worker reads relative paths from there")
    if not {"-h", "--help"} & set(rest):
        _choose_server()
    door: Door[Any, Any] = importlib.import_module(f"flows.{flow}").DOOR
    prog = f"python -m flows.deploy {flow}"
    parser = FlagParser(prog, door.config, door.about, "", can_preview=False, recipes=door.recipes)
    config = parser.parse(rest).config
    refuse_unfit_workspace(config)
    schedule = _schedule(options.cron, options.timezone)
    from prefect.client.orchestration import get_client

    from flows._deployments import make_pool, of_flow, set_up

    shipped = of_flow(flow)
    name = options.deployment or shipped.name
    with get_client(sync_client=True) as client:
        make_pool(client, options.pool)
        settings = config.model_dump(mode="json", exclude_unset=True)
        is_new = set_up(client, shipped, name, options.pool, settings, schedule)
    when = f", runs at {schedule.cron} {schedule.timezone}" if schedule else ""
    print(f"{flow}/{name}: {'made' if is_new else 'set'}{when}")
    return EXIT_DONE


def _schedule(cron: str | None, timezone: str | None) -> CronSchedule | None:
    from prefect.client.schemas.schedules import CronSchedule
    from pydantic import ValidationError

    if cron is None:
        if timezone is not None:
            raise UsageError("--timezone is that of --cron: give both")
        return None
    try:
        return CronSchedule(cron=cron, timezone=timezone or "UTC")
    except ValidationError as error:
        raise UsageError(f"--cron, --timezone: {error.errors()[0]['msg']}") from error


def flow_names() -> list[str]:
    """Modules of `flows/` with a deployment in `prefect.yaml`."""
    known = read_yaml(CHECKOUT / "prefect.yaml")["deployments"]
    return [Path(given["entrypoint"].partition(":")[0]).stem for given in known]


def _choose_server() -> None:
    """Settle which server Prefect will talk to, before it is imported."""
    apply_environment()
    address = configured_api_url() or served_api_url()
    if address is None:
        raise UserError("no Prefect server: start `python -m flows.serve`, or set PREFECT_API_URL")
    os.environ["PREFECT_API_URL"] = address


if __name__ == "__main__":
    sys.exit(main())

"""Print the account of a run; see the package's text. Exit code: 0, or 1 with the reason."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from training.goodput.account import RunAccount, account_run
from training.goodput.buckets import MEANINGS, MICROSECONDS, Bucket
from training.goodput.forecast import outlook
from training.goodput.prices import PriceTable, read_prices
from workspace.errors import DsmError

DEFAULT_RECOVERY_S = 300.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.goodput", description="Where a run's time and money went."
    )
    parser.add_argument("run", type=Path, help="WORKSPACE/runs/RUN")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--prices",
        type=Path,
        help="YAML file of prices (default: those that the run was started with)",
    )
    parser.add_argument(
        "--recovery",
        type=float,
        default=DEFAULT_RECOVERY_S,
        help="seconds from a failure to the next step, for the outlook of a run without failures",
    )
    chosen = parser.parse_args(arguments)
    try:
        account = account_run(chosen.run)
        given = chosen.prices and PriceTable.from_yaml(chosen.prices)
        prices = given or read_prices(chosen.run)
    except DsmError as error:
        print(f"goodput: {error}", file=sys.stderr)
        return 1
    if chosen.json:
        print(json.dumps(as_json(account, prices, chosen.recovery), indent=2))
    else:
        show(account, prices, chosen.recovery, Console())
    return 0


def as_json(
    account: RunAccount, prices: PriceTable | None, recovery_s: float = DEFAULT_RECOVERY_S
) -> dict[str, Any]:
    """The account as a JSON document."""
    rhythm = account.rhythm
    return {
        "run": account.run,
        "device_seconds": {str(b): value for b, value in account.device_seconds.items()},
        "allocated_device_seconds": account.allocated / MICROSECONDS,
        "goodput": account.goodput,
        "ettr": account.ettr,
        "failures": account.failures,
        "cost": None
        if prices is None
        else {"amount": account.cost(prices), "currency": prices.currency},
        "rhythm": rhythm._asdict(),
        "outlook": [row._asdict() for row in outlook(rhythm, recovery_s)],
        "attempts": [
            {
                "stage": attempt.trace.stage,
                "attempt": attempt.trace.attempt,
                "running": attempt.trace.running,
                "waited_behind": attempt.trace.waited_behind,
                "nodes": attempt.trace.nodes,
                "devices_per_node": attempt.trace.devices,
                "device": "CPU core" if attempt.trace.gpu is None else attempt.trace.gpu or "GPU",
                "device_seconds": {str(b): v / MICROSECONDS for b, v in attempt.time.items()},
            }
            for attempt in account.attempts
        ],
    }


def show(
    account: RunAccount, prices: PriceTable | None, recovery_s: float, console: Console
) -> None:
    """The account as tables."""
    console.print(_buckets(account, prices))
    console.print(_attempts(account))
    rows = outlook(account.rhythm, recovery_s)
    if rows:
        console.print(_outlook(account, recovery_s))


def _buckets(account: RunAccount, prices: PriceTable | None) -> Table:
    paid = account.allocated
    cost = account.cost(prices) if prices else 0.0
    table = Table(
        title=f"{account.run}: goodput {_percent(account.goodput)}, "
        f"ETTR {_percent(account.ettr)}, {account.failures} failure(s)"
    )
    table.add_column("bucket")
    for name in ("device-hours", "share", *(["cost"] if prices else [])):
        table.add_column(name, justify="right")
    table.add_column("what it is", style="dim")
    for bucket, value in account.time.items():
        share = value / paid if paid else 0.0
        free = bucket is Bucket.QUEUE
        money = ["" if free else _money(share * cost)] if prices else []
        table.add_row(
            bucket, _hours(value), "" if free else _percent(share), *money, MEANINGS[bucket]
        )
    table.add_section()
    money = [f"{_money(cost)} {prices.currency}"] if prices else []
    table.add_row("allocated", _hours(paid), _percent(1.0), *money, "all but the queue")
    return table


def _attempts(account: RunAccount) -> Table:
    table = Table(title="attempts, device-hours")
    table.add_column("attempt")
    table.add_column("devices", justify="right")
    for bucket in Bucket:
        table.add_column(bucket.replace("_", " "), justify="right")
    for attempt in account.attempts:
        trace = attempt.trace
        kind = "CPU" if trace.gpu is None else trace.gpu or "GPU"
        state = " (running)" if trace.running else ""
        state += " (its job waited behind the former)" if trace.waited_behind else ""
        table.add_row(
            f"{trace.stage} {trace.attempt}{state}",
            f"{trace.nodes_allocated} x {trace.devices} {kind}",
            *(_hours(attempt.time[bucket]) for bucket in Bucket),
        )
    return table


def _outlook(account: RunAccount, recovery_s: float) -> Table:
    rhythm = account.rhythm
    seen = rhythm.recovery_s
    recovery = f"{seen:.0f} s measured" if seen is not None else f"{recovery_s:.0f} s assumed"
    table = Table(
        title=f"outlook: a save holds {rhythm.save_s or 0:.2f} s, every "
        f"{rhythm.interval_s or 0:.0f} s of training; recovery {recovery}"
    )
    for name in ("failure every", "ETTR as now", "best interval", "ETTR then"):
        table.add_column(name, justify="right")
    for row in outlook(rhythm, recovery_s):
        table.add_row(
            f"{row.mtbf_h:g} h",
            _percent(row.ettr),
            f"{row.best_interval_s:.0f} s",
            _percent(row.best_ettr),
        )
    return table


def _hours(microseconds: int) -> str:
    return f"{microseconds / MICROSECONDS / 3600:,.3f}"


def _money(amount: float) -> str:
    return f"{amount:,.2f}" if amount >= 1 else f"{amount:.5f}"


def _percent(share: float | None) -> str:
    return "unknown" if share is None else f"{100 * share:.1f} %"


if __name__ == "__main__":
    sys.exit(main())

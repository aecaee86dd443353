"""The planner's answers as tables on a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from training.planner.backtest import Backtest, Score, groups, score_throughput
from training.planner.calibration import load
from training.planner.forecast import Forecast, PartPlan, counted
from training.planner.search import Lost

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

_WHY = {
    "slower": "slower",
    "too_large": "does not fit",
    "link": "link too slow",
    "indivisible": "does not divide",
}


def _console() -> Console:
    from rich.console import Console

    # A log or a file has no width of its own.
    return Console(highlight=False) if sys.stdout.isatty() else Console(width=140, highlight=False)


def _table(title: str, *columns: str) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    return table


def print_forecast(found: Forecast, shown: int) -> None:
    """Layouts, losers and scaling of every kind of node."""
    from rich.markup import escape

    console = _console()
    shape, job = found.shape, found.job
    active = f", {shape.active_parameters / 1e9:.3g} B active" if shape.is_moe else ""
    console.print(
        f"{escape(shape.name)}: {shape.parameters / 1e9:.4g} B parameters{active}; "
        f"{job.global_batch} x {job.seq_len} tokens a step, {job.arithmetic}, {job.method}, "
        f"{job.optimizer}; {found.tokens:.3g} tokens"
    )
    console.print(
        f"peak GiB contains a margin of {load().memory_margin - 1:.0%}, so as to be hardly ever "
        "below what a run needs"
    )
    if found.mixed:
        console.print(found.mixed)
    for part in found.parts:
        _print_part(console, part, found.tokens, shown)


def _print_part(console: Console, part: PartPlan, tokens: float, shown: int) -> None:
    plan, machine = part.plan, part.plan.machine
    title = (
        f"{machine.nodes} x {machine.gpus_per_node} {machine.gpu.name}, {machine.memory_gib:g} GiB"
        f", {machine.link_gbytes:g} GB/s inside, {machine.fabric_gbytes:g} GB/s between nodes"
    )
    if machine.fabric_measured:
        title += f" (measured on {machine.fabric_measured})"
    table = _table(
        title,
        "layout",
        "micro-batch",
        "checkpointing",
        "peak GiB",
        "step s",
        "MFU",
        "tokens/s",
        "per GPU",
        "hours",
        "cost",
    )
    for item in plan.candidates[:shown]:
        layout, speed = item.layout, item.speed
        hours = tokens / speed.tokens_per_second / 3600
        price = machine.price_per_gpu_hour
        table.add_row(
            layout.label,
            str(layout.micro_batch),
            layout.checkpointing,
            f"{item.memory.total:.1f}",
            f"{speed.seconds:.3g}",
            f"{speed.mfu:.1%}",
            f"{speed.tokens_per_second:,.0f}",
            f"{speed.tokens_per_second_per_gpu:,.0f}",
            f"{hours:,.1f}",
            "" if price is None else f"{hours * machine.gpus * price:,.0f}",
        )
    if plan.candidates:
        console.print(table)
    else:
        console.print(f"{title}: {plan.nothing_fits}")
    _print_lost(console, plan.lost, shown)
    _print_scaling(console, part)


def _print_lost(console: Console, lost: list[Lost], shown: int) -> None:
    if not lost:
        return
    counts = ", ".join(f"{number} {_WHY[why]}" for why, number in counted(lost).items())
    table = _table(f"Others: {counts}", "layout", "why")
    # A few of each reason say more than many of the first.
    share = max(1, shown // len(counted(lost)))
    seen: dict[str, int] = {}
    for item in lost:
        seen[item.why] = seen.get(item.why, 0) + 1
        if seen[item.why] <= share:
            table.add_row(item.layout.label, item.detail)
    console.print(table)


def _print_scaling(console: Console, part: PartPlan) -> None:
    table = _table(
        "Scaling, the same global batch", "nodes", "layout", "tokens/s", "speed-up", "efficiency",
        "hours", "cost",
    )  # fmt: skip
    for row in part.scaling:
        if row.candidate is None:
            table.add_row(str(row.nodes), row.why, *[""] * 5)
            continue
        table.add_row(
            str(row.nodes),
            row.candidate.layout.label,
            f"{row.candidate.speed.tokens_per_second:,.0f}",
            f"{row.speedup:.2f}x",
            f"{row.efficiency:.0%}",
            f"{row.hours:,.1f}",
            "" if row.cost is None else f"{row.cost:,.0f}",
        )
    console.print(table)


def print_backtest(result: Backtest, shown: int) -> None:
    """Errors, the worst rows, and every reason for a row left out."""
    from rich.markup import escape

    console = _console()
    table = _table("Back-test", "", "runs", "median", "p90", "most under")
    _score_row(table, "throughput", result.throughput)
    for name, members in groups(result.predictions).items():
        _score_row(table, f"  {name}", score_throughput(members))
    _score_row(table, "peak memory", result.memory, f"{result.memory.worst_under:.1%}")
    console.print(table)
    judged = [item for item in result.predictions if item.throughput_error is not None]
    worst = sorted(judged, key=lambda item: -abs(item.throughput_error or 0.0))[:shown]
    rows = _table("Farthest off", "run", "line", "layout", "measured", "predicted", "error")
    for item in worst:
        run = item.run
        rows.add_row(
            escape(f"{run.source} {run.model} {run.machine.gpu.name}"),
            str(run.line),
            run.layout.label,
            f"{run.tokens_per_second_per_gpu or 0:,.0f}",
            f"{item.tokens_per_second_per_gpu:,.0f}",
            f"{item.throughput_error or 0:+.0%}",
        )
    console.print(rows)
    reasons: dict[str, list[int]] = {}
    for left in result.unjudged:
        reasons.setdefault(left.reason, []).append(left.line)
    for reason, lines in reasons.items():
        numbers = ", ".join(map(str, lines))
        console.print(escape(f"not judged, {len(lines)}: {reason} (lines {numbers})"))


def _score_row(table: Table, name: str, score: Score, under: str = "") -> None:
    if score.n:
        table.add_row(name, str(score.n), f"{score.median:.1%}", f"{score.p90:.1%}", under)
    else:
        table.add_row(name, "0", "", "", "")

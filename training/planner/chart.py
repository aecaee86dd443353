"""Memory of the best layouts and speed over nodes, as one picture (PNG or SVG)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from training.planner.forecast import Forecast, PartPlan
from training.planner.memory import Memory
from workspace import publish
from workspace.errors import MissingToolError, UserError

_SHOWN = 6


def draw(found: Forecast, path: Path) -> None:
    """Write the picture. Raises `UserError` for another ending, or when nothing fits."""
    ending = path.suffix.lower()
    if ending not in (".png", ".svg"):
        raise UserError(f"chart {path}: the name must end with .png or .svg")
    if found.best is None:
        raise UserError(f"chart {path}: no layout fits, so that there is nothing to draw")
    try:
        import matplotlib
    except ImportError as error:
        raise MissingToolError(
            "the chart needs matplotlib: `pip install matplotlib`, or leave --chart out"
        ) from error
    matplotlib.use("agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    _memory(left, found.best)
    _scaling(right, found)
    figure.suptitle(f"{found.shape.name}: {found.job.global_batch} x {found.job.seq_len} tokens")
    try:
        with publish.atomic_path(path) as temporary:
            figure.savefig(temporary, dpi=120)
    except OSError as error:
        raise UserError(f"chart {path}: {error.strerror}") from error


def _memory(axes: Any, part: PartPlan) -> None:
    items = part.plan.candidates[:_SHOWN][::-1]
    names = [f"{item.layout.label}\n{item.layout.checkpointing}" for item in items]
    start = [0.0] * len(items)
    for name in Memory._fields:
        sizes = [getattr(item.memory, name) for item in items]
        axes.barh(names, sizes, left=start, label=name)
        start = [before + size for before, size in zip(start, sizes, strict=True)]
    axes.axvline(part.plan.machine.memory_gib, color="black", linestyle="--")
    axes.set_xlabel(f"GiB on one {part.plan.machine.gpu.name} (dashed: all of it)")
    axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=4)


def _scaling(axes: Any, found: Forecast) -> None:
    for part in found.parts:
        rows = [row for row in part.scaling if row.candidate is not None]
        if not rows:
            continue
        nodes = [row.nodes for row in rows]
        rates = [row.candidate.speed.tokens_per_second for row in rows if row.candidate]
        (line,) = axes.plot(nodes, rates, marker="o", label=part.plan.machine.gpu.name)
        ideal = [rates[0] * count / nodes[0] for count in nodes]
        axes.plot(nodes, ideal, linestyle=":", color=line.get_color())
    axes.set_xticks(sorted({row.nodes for part in found.parts for row in part.scaling}))
    axes.set_xlabel("nodes (dotted: in proportion)")
    axes.set_ylabel("tokens per second")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")

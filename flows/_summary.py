"""What a flow prints when it ends: a short table, then where to look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks._markdown import escape
from workspace.stage import StageResult

_SHOWN_COUNTS = 8


@dataclass(frozen=True)
class StageLine:
    """One row of the table."""

    stage: str
    state: str
    done: str
    left_out: str
    seconds: float


@dataclass(frozen=True)
class Summary:
    """The end of a run as text."""

    headline: str
    stages: tuple[StageLine, ...] = ()
    places: Mapping[str, Path] | None = None  # what -> where
    notes: tuple[str, ...] = ()
    quarantined: int = 0


def summarise_stage(name: str) -> Callable[[StageResult], Summary]:
    """A function from the result of the stage `name` to its summary."""

    def summarise(result: StageResult) -> Summary:
        return Summary(
            headline=headline(name, result),
            stages=(stage_line(name, result),),
            places=stage_places(result),
            quarantined=result.manifest.quarantined,
        )

    return summarise


def headline(name: str, result: StageResult) -> str:
    """For example `ingest: nothing to do: already published`."""
    state = "nothing to do: already published" if result.skipped else "done"
    quarantined = result.manifest.quarantined
    return f"{name}: {state}" + (f", {quarantined} input(s) quarantined" if quarantined else "")


def stage_line(name: str, result: StageResult) -> StageLine:
    """The stage's row."""
    manifest = result.manifest
    return StageLine(
        stage=name,
        state="skipped" if result.skipped else "done",
        done=_counts(manifest.counts_out),
        left_out=_counts(manifest.rejects),
        seconds=manifest.seconds,
    )


def stage_places(result: StageResult) -> dict[str, Path]:
    """The output folder and the pages in it that a person opens."""
    places = {"output": result.directory}
    for suffix in (".html", ".md"):
        for page in sorted(result.directory.glob(f"*{suffix}")):
            places[page.stem.partition("-")[0]] = page
    return places


def print_summary(summary: Summary, *, seconds: float) -> None:
    """Print `summary` on standard output."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(f"{summary.headline} ({seconds:.1f} s)", style="bold"))
    if summary.stages:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for title in ("stage", "", "made", "left out"):
            table.add_column(title, overflow="fold")
        table.add_column("seconds", justify="right")
        for line in summary.stages:
            cells = (line.stage, line.state, line.done, line.left_out, f"{line.seconds:.1f}")
            table.add_row(*(Text(cell) for cell in cells))
        console.print(table)
    for note in summary.notes:
        console.print(Text(note))
    for what, where in (summary.places or {}).items():
        # Never wrapped: paths are copied from here.
        console.print(Text(f"{what:<10} {where}"), soft_wrap=True)


def markdown(summary: Summary) -> str:
    """`summary` for a page in the Prefect UI."""
    head = ("stage", "state", "made", "left out", "seconds")
    rows = [
        (line.stage, line.state, line.done, line.left_out, f"{line.seconds:.1f}")
        for line in summary.stages
    ]
    parts = [f"# {escape(summary.headline)}"]
    if rows:
        lines = [head, ("---",) * len(head), *rows]
        parts.append("\n".join("| " + " | ".join(map(escape, cells)) + " |" for cells in lines))
    if summary.notes:
        parts.append("```text\n" + "\n".join(map(escape, summary.notes)) + "\n```")
    places = summary.places or {}
    parts.append("\n".join(f"- {escape(what)}: `{escape(str(at))}`" for what, at in places.items()))
    return "\n\n".join(parts) + "\n"


def _counts(counts: Mapping[str, int]) -> str:
    shown = [f"{name} {count:,}" for name, count in sorted(counts.items()) if count]
    extra = len(shown) - _SHOWN_COUNTS
    return ", ".join(shown[:_SHOWN_COUNTS]) + (f" and {extra} more" if extra > 0 else "")

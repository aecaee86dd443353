"""What a flow prints when it ends: a short table, then where to look."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from tasks._markdown import escape
from workspace.stage import StageResult

_SHOWN_REASONS = 3


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
    declined: bool = False  # a gate said no


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
        done=_made(manifest.counts_out),
        left_out=_left_out(manifest.rejects),
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
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(f"{summary.headline} ({seconds:.1f} s)", style="bold"), soft_wrap=True)
    table = Table.grid(padding=(0, 2))
    for line in summary.stages:
        table.add_row(
            Text(line.stage, no_wrap=True),
            Text(line.state, no_wrap=True),
            Text(f"{line.seconds:.1f} s", no_wrap=True, justify="right"),
            Text(line.done or "nothing"),
        )
        if line.left_out:
            table.add_row("", "", "", Text(f"left out {line.left_out}", style="dim"))
    if summary.stages:
        console.print(table)
    if summary.notes:
        console.print()
    for note in summary.notes:
        console.print(Text(note), soft_wrap=True)
    places = summary.places or {}
    if places:
        console.print()
    width = max(map(len, places), default=0)
    for what, where in places.items():
        # Never wrapped: paths are copied from here.
        console.print(Text(f"{what:<{width}}  {where}"), soft_wrap=True)


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


def _made(counts: Mapping[str, int]) -> str:
    """The counts of a manifest, without those that break another one down (`test/open_book`)."""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())
                     if count and "/" not in name)  # fmt: skip


def _left_out(rejects: Mapping[str, int]) -> str:
    """How much in all, and the most frequent reasons."""
    ranked = sorted(rejects.items(), key=lambda item: (-item[1], item[0]))
    shown = [f"{name} {count:,}" for name, count in ranked[:_SHOWN_REASONS] if count]
    if len(ranked) <= _SHOWN_REASONS:
        return ", ".join(shown)
    return f"{sum(rejects.values()):,}: {', '.join(shown)} …"

"""Reports as Markdown for the Prefect UI, which renders HTML in it: texts are made inert."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from training.run_story import AttemptLine, StoryLine, Told
from workspace.stage import StageResult

_MOST_ATTEMPTS = 20
_MOST_LINES = 30


def stage_markdown(stage: str, result: StageResult) -> str:
    """The report as Markdown."""
    manifest = result.manifest
    state = "already published, nothing to do" if result.skipped else "published"
    parts = [
        f"# {stage}: {state}",
        f"`{escape(str(result.directory))}` · {manifest.seconds:.1f} s · "
        f"key `{manifest.key}` · code `{escape(manifest.code_version)}`",
        markdown_table("In", manifest.counts_in),
        markdown_table("Out", manifest.counts_out),
        markdown_table("Left out, by reason", manifest.rejects),
    ]
    pages = [f"- `{escape(str(path))}`" for path in readable_files(result.directory)]
    if pages:
        parts.append("## To look at\n" + "\n".join(pages))
    return "\n\n".join(part for part in parts if part) + "\n"


def run_markdown(told: Told, page: Path) -> str:
    """The story of a training run: its state, its newest attempts, what happened last."""
    attempts = [_attempt_cells(line) for line in told.attempts[::-1][:_MOST_ATTEMPTS]]
    lines = [_story_cells(line) for line in told.lines[::-1][:_MOST_LINES]]
    older = told.older + len(told.lines) - len(lines)
    parts = [
        f"# {inert(told.state.sentence)}",
        f"Page with curves and logs: `{escape(str(page))}`",
        _table(
            "Attempts, newest first",
            ("stage", "no.", "submitted (UTC)", "waited", "ran", "ended", "checkpoint", "then"),
            attempts,
        ),
        _table(
            "What happened, newest first", ("time (UTC)", "what", "more", "nodes", "where"), lines
        ),
        f"{older} older lines are on that page." if older else "",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _attempt_cells(line: AttemptLine) -> tuple[str, ...]:
    return (
        line.stage, str(line.number), line.submitted, line.queued, line.ran, line.ended,
        line.checkpoint, line.decision,
    )  # fmt: skip


def _story_cells(line: StoryLine) -> tuple[str, ...]:
    return line.time, line.title, line.detail, line.nodes, line.place


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A section with a table of texts, or nothing without rows."""
    if not rows:
        return ""
    lines = [names, ["---"] * len(names), *([inert(cell) for cell in row] for row in rows)]
    return f"## {title}\n\n" + "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def count_rows(result: StageResult) -> list[dict[str, object]]:
    """The counts of a manifest, one row each."""
    manifest = result.manifest
    groups = (
        ("in", manifest.counts_in), ("out", manifest.counts_out), ("rejected", manifest.rejects),
    )  # fmt: skip
    return [
        {"kind": kind, "name": name, "count": count}
        for kind, counts in groups
        for name, count in sorted(counts.items())
    ]


def readable_files(folder: Path) -> list[Path]:
    """The pages of a published folder that a person opens: HTML, cards, pictures of graphs."""
    return sorted(
        path
        for path in folder.glob("*")
        if path.suffix in (".html", ".md", ".graphml") and path.is_file()
    )


def markdown_table(title: str, counts: Mapping[str, int]) -> str:
    """A section with a two-column table, or nothing when there are no counts."""
    if not counts:
        return ""
    rows = "\n".join(f"| {escape(name)} | {count:,} |" for name, count in sorted(counts.items()))
    return f"## {title}\n\n| name | count |\n| --- | ---: |\n{rows}"


def escape(text: str) -> str:
    """`text` as inert Markdown inside a table cell or code span."""
    return html.escape(text, quote=False).replace("|", "\\|").replace("`", "'").replace("\n", " ")


def inert(text: str) -> str:
    """`text` as Markdown that shows it letter by letter: no HTML, link, picture or table in it."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


def code_cells(rows: Sequence[Mapping[str, object]], *columns: str) -> list[dict[str, object]]:
    """`rows` for a table artifact, whose texts the UI reads as Markdown: `columns` become code.

    Nothing is markup inside a code span, so names and messages from documents stay inert.
    """
    return [
        {name: code(str(value)) if name in columns else value for name, value in row.items()}
        for row in rows
    ]


def code(text: str) -> str:
    """`text` as one code span."""
    flat = " ".join(text.replace("`", "'").split())
    return f"`{flat}`" if flat else ""

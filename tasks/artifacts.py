"""What a run shows on its page in the Prefect UI: progress, a report, tables, pictures.

Keys are fixed per stage, so the UI keeps a history of each. Artifacts hold figures and paths; the
data stays in the workspace. Texts from documents are escaped: the UI renders HTML in Markdown.
"""

from __future__ import annotations

import base64
import html
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)

from workspace.progress import Advance, clock, for_stream
from workspace.stage import StageResult

# An update is a request to the server; more than one in two seconds shows nobody anything.
_UPDATE_EVERY_S = 2.0


def key(stage: str, kind: str) -> str:
    """The artifact key of `kind` for `stage`: lower case and dashes, as Prefect wants it."""
    return f"{stage}-{kind}".replace("_", "-").lower()


@contextmanager
def progress(stage: str, total: int, unit: str) -> Iterator[Advance]:
    """Count `total` units of `stage`: on the run's page, and in the terminal or the log."""
    shown = ProgressArtifact(stage, total, unit)
    with for_stream()(stage, total, unit) as advance:

        def both(n: int) -> None:
            advance(n)
            shown.advance(n)

        yield both
    shown.finish()


class ProgressArtifact:
    """A progress bar on the run's page, updated at most every two seconds."""

    def __init__(self, stage: str, total: int, unit: str) -> None:
        self.done = 0
        self._total = total
        self._unit = unit
        self._start = self._last = time.monotonic()
        made = create_progress_artifact(
            0.0, key=key(stage, "progress"), description=f"0 of {total} {unit}"
        )
        assert isinstance(made, UUID)  # typed for async callers too
        self._id = made

    def advance(self, n: int) -> None:
        """Add `n` units."""
        self.set(self.done + n)

    def set(self, done: int) -> None:
        """Show `done` units."""
        self.done = done
        if time.monotonic() - self._last >= _UPDATE_EVERY_S:
            self._update()

    def finish(self) -> None:
        """Show that all is done."""
        self.done = self._total
        self._update()

    def _update(self) -> None:
        self._last = time.monotonic()
        percent = 100.0 * self.done / self._total if self._total else 100.0
        spent = clock(self._last - self._start)
        update_progress_artifact(
            self._id,
            progress=min(percent, 100.0),
            description=f"{self.done} of {self._total} {self._unit} in {spent}",
        )


def report_stage(stage: str, result: StageResult) -> None:
    """The stage's Markdown report and its table of counts."""
    create_markdown_artifact(
        stage_markdown(stage, result),
        key=key(stage, "report"),
        description=f"{stage}: what came in, what came out, what was left out and why",
    )
    create_table_artifact(
        count_rows(result),
        key=key(stage, "counts"),
        description=f"{stage}: counts in, out and rejected by reason",
    )


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


def show_table(stage: str, kind: str, rows: Sequence[Mapping[str, object]], text: str) -> None:
    """A table artifact of `rows`."""
    create_table_artifact([dict(row) for row in rows], key=key(stage, kind), description=text)


def show_image(stage: str, kind: str, png: bytes, text: str) -> None:
    """A picture on the run's page; carried inside the artifact, so that any browser shows it."""
    address = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
    create_image_artifact(address, key=key(stage, kind), description=text)


def escape(text: str) -> str:
    """`text` as inert Markdown inside a table cell or code span."""
    return html.escape(text, quote=False).replace("|", "\\|").replace("`", "'").replace("\n", " ")

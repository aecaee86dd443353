"""What a run shows on its page in the Prefect UI: progress, a report, tables, pictures.

Keys are fixed per stage, so the UI keeps a history of each. Artifacts hold figures and paths; the
data stays in the workspace. Texts from documents are escaped: the UI renders HTML in Markdown.
"""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from PIL import Image
from prefect.artifacts import (
    create_image_artifact,
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import ArtifactUpdate

from tasks._markdown import count_rows, stage_markdown
from workspace.progress import Advance, clock, for_stream
from workspace.stage import StageResult

# An update is a request to the server; more than one in two seconds shows nobody anything.
_UPDATE_EVERY_S = 2.0


def key(stage: str, kind: str) -> str:
    """The artifact key of `kind` for `stage`: lower case and dashes, as Prefect wants it."""
    return f"{stage}-{kind}".replace("_", "-").lower()


@contextmanager
def progress(stage: str, total: int, unit: str, *, lines: bool = True) -> Iterator[Advance]:
    """Count `total` units of `stage`: on the run's page, and in the terminal or the log.

    Without `lines` the log is left to the caller.
    """
    shown = ProgressArtifact(stage, total, unit)
    with for_stream(lines=lines)(stage, total, unit) as advance:

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
    text = f"{stage}: what came in, what came out, what was left out and why"
    show_report(stage, stage_markdown(stage, result), text)
    create_table_artifact(
        count_rows(result),
        key=key(stage, "counts"),
        description=f"{stage}: counts in, out and rejected by reason",
    )


def show_report(stage: str, markdown: str, text: str, *, kind: str = "report") -> None:
    """A Markdown report on the run's page."""
    create_markdown_artifact(markdown, key=key(stage, kind), description=text)


def show_table(stage: str, kind: str, rows: Sequence[Mapping[str, object]], text: str) -> None:
    """A table artifact of `rows`."""
    create_table_artifact([dict(row) for row in rows], key=key(stage, kind), description=text)


class KeptReport:
    """A Markdown report on the run's page that is replaced in place as the work goes on."""

    def __init__(self, stage: str, kind: str, text: str) -> None:
        self._key = key(stage, kind)
        self._text = text
        self._id: UUID | None = None

    def show(self, markdown: str) -> None:
        """Show `markdown` instead of what is there."""
        if self._id is None:
            made = create_markdown_artifact(markdown, key=self._key, description=self._text)
            assert isinstance(made, UUID)  # typed for async callers too
            self._id = made
            return
        with get_client(sync_client=True) as client:
            client.update_artifact(self._id, ArtifactUpdate(data=markdown))


def show_image(stage: str, kind: str, png: bytes, text: str) -> None:
    """A picture on the run's page; carried inside the artifact, so that any browser shows it."""
    picture = io.BytesIO()
    with Image.open(io.BytesIO(png)) as image:
        # Of scanned pages a JPEG is several times smaller, and it is stored in the database.
        image.convert("RGB").save(picture, "JPEG", quality=80)
    address = "data:image/jpeg;base64," + base64.b64encode(picture.getvalue()).decode("ascii")
    create_image_artifact(address, key=key(stage, kind), description=text)

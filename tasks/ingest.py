"""Tasks of ingest: files -> corpus tables, and a contact sheet of what was found."""

from __future__ import annotations

from corpus import ingest, report
from tasks import artifacts
from tasks.stage import stage_tasks
from workspace.progress import Advance
from workspace.stage import Shard, ShardReport, StageResult


def process(config: ingest.IngestConfig, shard: Shard, advance: Advance) -> ShardReport:
    """Parse a shard's documents, counting their kilobytes."""
    return ingest.process(config, shard, advance)


INGEST = stage_tasks("ingest", ingest, unit="kB", process=process)


def show_documents(result: StageResult) -> None:
    """Every file with what became of it, and the contact sheet of page images if there are any."""
    text = "ingest: every file, what was found in it, or why it was left out"
    markdown = report.markdown(result.directory, result.manifest)
    artifacts.show_report("ingest", markdown, text, kind="files")
    for entry in result.manifest.files:
        if entry.path.endswith(".png") and "/" not in entry.path:
            png = (result.directory / entry.path).read_bytes()
            artifacts.show_image("ingest", "contact-sheet", png, "ingest: pages of the corpus")

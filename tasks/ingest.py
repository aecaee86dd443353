"""Tasks of ingest: files -> corpus tables, and a contact sheet of what was found."""

from __future__ import annotations

from corpus import ingest, report
from corpus.ingest_config import IngestConfig
from tasks import artifacts
from tasks._markdown import code_cells
from tasks.stage import stage_tasks
from workspace.progress import Advance
from workspace.stage import Shard, ShardReport, StageResult


def process(config: IngestConfig, shard: Shard, advance: Advance) -> ShardReport:
    """Parse a shard's documents, counting their kilobytes."""
    return ingest.process(config, shard, advance)


INGEST = stage_tasks("ingest", ingest, unit="kB", process=process)


def show_documents(result: StageResult) -> None:
    """Every file with what became of it, the slowest, the quarantined, and the contact sheet."""
    text = "ingest: every file, what was found in it, or why it was left out"
    markdown = report.markdown(result.directory, result.manifest)
    artifacts.show_report("ingest", markdown, text, kind="files")
    slowest = report.slowest_files(result.directory, result.manifest)
    text = "ingest: the files that took the most CPU time, and the step that took most of it"
    artifacts.show_table("ingest", "slowest", code_cells(slowest, "file"), text)
    quarantined = report.quarantined_files(result.directory, result.manifest)
    text = "ingest: what could not be read, and why"
    shown = code_cells(quarantined, "file", "detail")
    artifacts.show_table("ingest", "quarantine", shown, text)
    for entry in result.manifest.files:
        if entry.path.endswith(".png") and "/" not in entry.path:
            png = (result.directory / entry.path).read_bytes()
            artifacts.show_image("ingest", "contact-sheet", png, "ingest: pages of the corpus")

"""Corpora for the tests of the browser: one ingested from hostile files, others made from rows."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

import pyarrow as pa
from corpus_samples import manual_pdf
from ingest_runs import run_ingest

from corpus.schema import TABLES_BY_NAME
from workspace.manifest import Manifest, now, write_manifest
from workspace.shards import Row, write_table

SCRIPT = "<script>document.title='owned'</script>"
IMAGE = "<img src=x onerror=\"document.title='owned'\">"
HOSTILE_NAME = "<img src=x onerror=document.title='owned'>.md"
# As entities: Markdown would drop the tags themselves, and what is read are the tags.
HOSTILE_TEXT = f"""# {escape(SCRIPT)} Title

The zebrafish register holds {escape(IMAGE)} and 漢字の説明 as they are.

| signal | &lt;/table&gt;{escape(SCRIPT)} |
| --- | --- |
| clk_en | 4 |
| rst | 12 |
"""
MODULE = """// Counts pulses.
module counter #(parameter WIDTH = 8) (input clk, input rst, output [WIDTH-1:0] value);
endmodule
"""


def hostile_corpus(folder: Path) -> Path:
    """A workspace with a PDF, a page of hostile Markdown, RTL and a broken file."""
    sources = folder / "sources"
    sources.mkdir(parents=True)
    manual_pdf(sources / "manual.pdf", n_pages=2)
    (sources / HOSTILE_NAME).write_text(HOSTILE_TEXT)
    (sources / "counter.v").write_text(MODULE)
    (sources / "broken <b>.pdf").write_bytes(b"%PDF-1.7\nno more of it")
    workspace = folder / "<b>W"
    run_ingest(workspace, sources)
    return workspace


def publish_rows(workspace: Path, tables: Mapping[str, Iterable[Row]]) -> None:
    """A corpus with these rows; columns that a row leaves out are empty."""
    folder = workspace / "corpus"
    files = []
    counts = {}
    for name, schema in TABLES_BY_NAME.items():
        rows = [{**_empty(schema), **row} for row in tables.get(name, ())]
        counts[name] = len(rows)
        files += write_table(folder, name, schema, rows)
    manifest = Manifest(
        stage="corpus",
        key="0" * 16,
        fingerprint="0" * 16,
        settings={},
        inputs={},
        code_version="test",
        counts_out={**counts, "quarantined": 0},
        created=now(),
        files=files,
    )
    write_manifest(folder, manifest)


def doc_id_of(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def _empty(schema: pa.Schema) -> dict[str, Any]:
    return {field.name: _nothing(field.type) for field in schema}


def _nothing(kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return ""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return 0
    if pa.types.is_list(kind):
        return []
    return False if pa.types.is_boolean(kind) else None

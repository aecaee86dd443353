"""The ingest stage from files to published tables: nothing is lost, order and workers are free."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pymupdf
import pytest
from corpus_samples import BODY, manual_pdf, picture, text_pdf
from ingest_runs import configure, reasons, rows, run_ingest, tables

from corpus import ingest, report
from corpus.schema import TABLES_BY_NAME
from workspace.errors import MissingInputError, UserError
from workspace.manifest import Manifest, read_manifest
from workspace.shards import read_table

VERILOG = (
    "// A latch-free register.\nmodule reg1(input clk, input d, output reg q);\n"
    "always @(posedge clk) q <= d;\nendmodule\n"
)


def make_folder(folder: Path) -> Path:
    """Good, broken, doubled and hidden files of many kinds."""
    folder.mkdir()
    manual_pdf(folder / "manual.pdf", 3)
    (folder / "notes.md").write_text("# Notes\n\nThe reset is synchronous and active high.\n")
    (folder / "reg1.v").write_text(VERILOG)
    (folder / "data.csv").write_text("pin,level\nRST,1\nCLK,0\n")
    (folder / "logo.png").write_bytes(picture())
    (folder / "sub").mkdir()
    shutil.copy(folder / "notes.md", folder / "sub" / "copy of notes.md")
    (folder / "empty.txt").touch()
    (folder / "also-empty.pdf").touch()
    (folder / "broken.pdf").write_bytes(b"%PDF-1.7\n1 0 obj\nnothing follows")
    (folder / "archive.bin").write_bytes(bytes(range(256)) * 8)
    (folder / ".hidden").write_text("not for us")
    with pymupdf.open() as document:
        document.new_page()
        document.save(
            folder / "locked.pdf", encryption=pymupdf.PDF_ENCRYPT_AES_256, user_pw="u", owner_pw="o"
        )
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("sources") / "docs")


@pytest.fixture(scope="module")
def workspace(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("workspace")
    run_ingest(path, folder, workers=1)
    return path


def manifest_of(workspace: Path) -> Manifest:
    manifest = read_manifest(workspace / "corpus")
    assert manifest is not None
    return manifest


def test_every_file_is_accounted_for(workspace: Path, folder: Path) -> None:
    given = {str(p) for p in folder.rglob("*") if p.is_file() and not p.name.startswith(".")}
    kept = {uri for row in rows(workspace, "documents") for uri in row["uris"]}
    lost = {row["uri"] for row in rows(workspace, "quarantine")}
    assert kept | lost == given and not kept & lost
    assert manifest_of(workspace).notes["hidden_left_out"] == 1


def test_each_loss_has_its_reason(workspace: Path) -> None:
    found = reasons(workspace)
    assert found.pop("broken.pdf") in ("corrupt", "no_pages")
    assert found == {
        "empty.txt": "empty",
        "also-empty.pdf": "empty",
        "archive.bin": "unsupported",
        "locked.pdf": "encrypted",
    }
    assert sum(manifest_of(workspace).rejects.values()) == 5
    assert manifest_of(workspace).quarantined == 5


def test_equal_files_are_one_document(workspace: Path, folder: Path) -> None:
    (notes,) = [row for row in rows(workspace, "documents") if row["format"] == "md"]
    assert notes["uris"] == [str(folder / "notes.md"), str(folder / "sub" / "copy of notes.md")]
    digest = hashlib.sha256((folder / "notes.md").read_bytes()).hexdigest()
    assert notes["doc_id"] == digest
    assert manifest_of(workspace).counts_in["duplicates"] == 2  # the empty files are equal too


def test_the_tables_fit_together(workspace: Path) -> None:
    found = tables(workspace)
    documents = {row["doc_id"]: row for row in found["documents"]}
    elements = {row["element_id"]: row for row in found["elements"]}
    assert len(elements) == len(found["elements"])
    for name in ("pages", "elements", "tables", "images", "modules"):
        per_document: dict[str, int] = dict.fromkeys(documents, 0)
        for row in found[name]:
            per_document[row["doc_id"]] += 1
        assert per_document == {d: row[f"n_{name}"] for d, row in documents.items()}
        keys = [(r["doc_id"], r.get("page", 0), r.get("order", 0)) for r in found[name]]
        assert keys == sorted(keys)
    for name in ("tables", "images", "modules"):
        assert all(row["element_id"] in elements for row in found[name])
    for row in found["chunks"]:
        assert row["element_ids"] and all(e in elements for e in row["element_ids"])
    assert {row["doc_id"] for row in found["summaries"]} <= set(documents)
    assert [row["name"] for row in found["modules"]] == ["reg1"]


def test_tables_open_with_their_schema(workspace: Path) -> None:
    for name, schema in TABLES_BY_NAME.items():
        assert read_table(workspace / "corpus", name).schema.names == schema.names


def test_order_of_sources_and_number_of_workers_change_nothing(
    workspace: Path, folder: Path, tmp_path: Path
) -> None:
    files = sorted((p for p in folder.rglob("*") if p.is_file()), reverse=True)
    visible = [p for p in files if not p.name.startswith(".")]
    manifest = run_ingest(tmp_path, *visible, folder / "sub", workers=2)
    assert manifest.key == manifest_of(workspace).key
    first, second = (
        {e.path: e.sha256 for e in m.files if e.path.endswith(".parquet")}
        for m in (manifest_of(workspace), manifest)
    )
    assert first == second


def test_the_same_work_is_not_done_twice(workspace: Path, folder: Path) -> None:
    config = configure(workspace, folder)
    planned = ingest.plan(config)
    assert planned.published == manifest_of(workspace)
    assert not (workspace / "corpus" / ".work").exists()


def test_another_setting_is_other_work(workspace: Path, folder: Path) -> None:
    assert ingest.plan(configure(workspace, folder, page_dpi=72)).published is None
    shutil.rmtree(workspace / "corpus" / ".work")


def test_a_changed_folder_costs_only_the_change(folder: Path, tmp_path: Path) -> None:
    sources = tmp_path / "docs"
    shutil.copytree(folder, sources)
    run_ingest(tmp_path / "w", sources)
    (sources / "data.csv").unlink()
    (sources / "locked.pdf").unlink()
    (sources / "notes.md").unlink()  # its copy in sub/ stays
    text_pdf(sources / "new.pdf", ["A new page about the watchdog timer."])
    new_id = hashlib.sha256((sources / "new.pdf").read_bytes()).hexdigest()

    planned = ingest.plan(configure(tmp_path / "w", sources, sync=True))
    assert [shard.items for shard in planned.shards] == [(new_id,)]
    again = run_ingest(tmp_path / "w", sources, sync=True)
    fresh = run_ingest(tmp_path / "fresh", sources)
    assert again.notes["reused_documents"] > 3 and fresh.notes["reused_documents"] == 0
    assert tables(tmp_path / "w") == tables(tmp_path / "fresh")
    assert again.rejects == fresh.rejects
    on_disk = {
        p.relative_to(tmp_path / "w/corpus").as_posix()
        for p in (tmp_path / "w/corpus").rglob("*")
        if p.is_file()
    }
    # The broken files were tried once.
    assert on_disk == {entry.path for entry in again.files} | {"manifest.json", "tries.json"}


def test_a_damaged_corpus_is_made_again(tmp_path: Path) -> None:
    text_pdf(tmp_path / "a.pdf", ["The only page."])
    manifest = run_ingest(tmp_path / "w", tmp_path / "a.pdf")
    before = tables(tmp_path / "w")
    (entry,) = [e for e in manifest.files if e.path.startswith("pages/")]
    (tmp_path / "w/corpus" / entry.path).unlink()
    run_ingest(tmp_path / "w", tmp_path / "a.pdf")
    assert tables(tmp_path / "w") == before


def test_a_new_suffix_is_a_new_reading(tmp_path: Path) -> None:
    """The suffix tells text kinds apart, so rows of the old kind must not be taken over."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/a.txt").write_text("# Heading\n\nA paragraph of plain words follows here.\n")
    run_ingest(tmp_path / "w", tmp_path / "docs")
    (tmp_path / "docs/a.txt").rename(tmp_path / "docs/a.md")
    run_ingest(tmp_path / "w", tmp_path / "docs")
    (document,) = rows(tmp_path / "w", "documents")
    assert document["format"] == "md" and document["name"] == "a.md"


def test_the_report_lists_each_file(workspace: Path, folder: Path) -> None:
    text = report.markdown(workspace / "corpus", manifest_of(workspace))
    for path in folder.rglob("*"):
        if path.is_file() and not path.name.startswith("."):
            assert f"`{path}`" in text


def test_hostile_names_stay_text_in_the_report(tmp_path: Path) -> None:
    name = "a|b`<script>alert(1)</script>.txt"
    (tmp_path / name.replace("/", "_")).write_text("Some plain words in a small file.\n")
    run_ingest(tmp_path / "w", tmp_path / name.replace("/", "_"))
    text = report.markdown(tmp_path / "w/corpus", manifest_of(tmp_path / "w"))
    (line,) = [line for line in text.splitlines() if "script" in line]
    cells = line.replace("\\|", "").split("|")
    assert len(cells) == 10 and cells[1].count("`") == 2


def test_the_contact_sheet_is_a_picture(workspace: Path) -> None:
    sheet = report.contact_sheet(workspace / "corpus", manifest_of(workspace))
    assert sheet is not None and sheet.startswith(b"\x89PNG")


def test_a_source_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no-such-folder"):
        ingest.plan(configure(tmp_path / "w", tmp_path / "no-such-folder"))
    (tmp_path / "void").mkdir()
    with pytest.raises(UserError, match=r"void.*holds no file"):
        ingest.plan(configure(tmp_path / "w", tmp_path / "void"))


def test_a_long_document_moves_the_progress_page_by_page(tmp_path: Path) -> None:
    long = text_pdf(tmp_path / "long.pdf", [f"Page {n} of many. {BODY}" for n in range(100)])
    config = configure(tmp_path / "w", long)
    (shard,) = ingest.plan(config).shards
    steps: list[int] = []
    ingest.process(config, shard, steps.append)
    assert sum(steps) == shard.units
    assert len([step for step in steps if step]) >= 4


def test_a_workspace_among_the_sources_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/note.txt").write_text("The timer is stopped.")
    (tmp_path / "a.md").write_text("# Timer\n\nIt counts.\n")
    first = run_ingest(tmp_path / "deep/w", tmp_path)
    assert run_ingest(tmp_path / "deep/w", tmp_path).key == first.key
    assert first.counts_out["documents"] == 2
    with pytest.raises(UserError, match="is the workspace too: give a workspace of its own"):
        run_ingest(tmp_path, tmp_path)


def test_process_without_a_plan_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("words")
    with pytest.raises(MissingInputError, match="plan"):
        ingest.publish(
            configure(tmp_path / "w", tmp_path / "a.txt"),
            ingest.StagePlan("corpus", "k", tmp_path / "w/corpus", (), {}),
        )


def test_the_backend_is_settled_before_the_fingerprint(tmp_path: Path) -> None:
    automatic = configure(tmp_path, tmp_path)
    assert automatic.pdf_backend == "pymupdf"
    assert (
        automatic.fingerprint()
        == configure(tmp_path, tmp_path, pdf_backend="pymupdf").fingerprint()
    )
    assert (
        automatic.fingerprint()
        != configure(tmp_path, tmp_path, pdf_backend="pypdfium2").fingerprint()
    )
    assert automatic.fingerprint() == configure(tmp_path, tmp_path, workers=7).fingerprint()

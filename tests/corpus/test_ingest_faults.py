"""Hostile documents and dying parsers: the damage stays where it arose."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from corpus_samples import text_pdf
from ingest_runs import reasons, rows, run_ingest, tables

from corpus import worker_pool

HERE = Path(__file__).parent


@pytest.fixture
def faulty_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        worker_pool, "WORKER_COMMAND", [sys.executable, str(HERE / "faulty_worker.py")]
    )


@pytest.mark.usefixtures("faulty_worker")
def test_a_bad_page_costs_that_page(tmp_path: Path) -> None:
    faults = {7: "CRASH", 20: "HANG", 21: "RAISE", 35: "EXHAUST"}
    pages = [f"Page number {n} says {faults.get(n, 'nothing bad')}." for n in range(1, 41)]
    text_pdf(tmp_path / "bad.pdf", pages)
    text_pdf(tmp_path / "good.pdf", ["All is well on this page."])
    run_ingest(
        tmp_path / "w",
        tmp_path / "bad.pdf",
        tmp_path / "good.pdf",
        page_timeout_s=6,
        memory_limit_mb=1200,
    )
    documents = {row["name"]: row for row in rows(tmp_path / "w", "documents")}
    assert documents["bad.pdf"]["status"] == "partial"
    assert documents["good.pdf"]["status"] == "ok"
    lost = {row["page"]: row["reason"] for row in rows(tmp_path / "w", "quarantine")}
    assert lost == {7: "crash", 20: "timeout", 21: "page_error", 35: "out_of_memory"}
    found = {
        row["page"]: row
        for row in rows(tmp_path / "w", "pages")
        if row["doc_id"] == documents["bad.pdf"]["doc_id"]
    }
    assert sorted(found) == list(range(1, 41))  # lost pages keep their place
    for number, row in found.items():
        assert (f"Page number {number} " in row["text"]) == (number not in faults)
        assert ("lost" in row["flags"]) == (number in faults)


@pytest.mark.usefixtures("faulty_worker")
def test_a_bad_document_costs_that_document(tmp_path: Path) -> None:
    for word in ("CRASH", "HANG", "EXHAUST", "RAISE", "quiet"):
        (tmp_path / f"{word}.txt").write_text(f"The word of this file is {word}.\n")
    run_ingest(
        tmp_path / "w",
        *sorted(tmp_path.glob("*.txt")),
        document_timeout_s=12,
        memory_limit_mb=1200,
    )
    assert reasons(tmp_path / "w") == {
        "CRASH.txt": "crash",
        "HANG.txt": "timeout",
        "EXHAUST.txt": "out_of_memory",
        "RAISE.txt": "parser_error",
    }
    assert [row["name"] for row in rows(tmp_path / "w", "documents")] == ["quiet.txt"]


@pytest.mark.usefixtures("faulty_worker")
def test_a_timeout_is_tried_again_in_the_next_run(tmp_path: Path) -> None:
    (tmp_path / "slow.txt").write_text("HANG\n")
    run_ingest(tmp_path / "w", tmp_path / "slow.txt", document_timeout_s=6)
    text_pdf(tmp_path / "more.pdf", ["Another file comes along later."])
    manifest = run_ingest(
        tmp_path / "w", tmp_path / "slow.txt", tmp_path / "more.pdf", document_timeout_s=6
    )
    assert manifest.notes["reused_documents"] == 0
    assert reasons(tmp_path / "w") == {"slow.txt": "timeout"}


def test_workers_that_cannot_start_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        worker_pool, "WORKER_COMMAND", [sys.executable, "-c", "raise SystemExit(9)"]
    )
    (tmp_path / "a.txt").write_text("words")
    with pytest.raises(worker_pool.WorkerStartError, match="code 9"):
        run_ingest(tmp_path / "w", tmp_path / "a.txt")


@pytest.mark.usefixtures("faulty_worker")
def test_bad_documents_among_many_small_ones_cost_themselves_only(tmp_path: Path) -> None:
    faults = {5: "CRASH", 18: "EXHAUST", 19: "RAISE", 31: "HANG"}
    for n in range(40):
        word = faults.get(n, "fine")
        (tmp_path / f"{n:02d}.txt").write_text(f"Note number {n} is {word}.\n")
    (tmp_path / "40.txt").write_bytes(b"\x00\x01 not a text")
    run_ingest(
        tmp_path / "w",
        *sorted(tmp_path.glob("*.txt")),
        document_timeout_s=6,
        memory_limit_mb=1200,
    )
    assert reasons(tmp_path / "w") == {
        "05.txt": "crash",
        "18.txt": "out_of_memory",
        "19.txt": "parser_error",
        "31.txt": "timeout",
        "40.txt": "unsupported",
    }
    names = {row["name"] for row in rows(tmp_path / "w", "documents")}
    assert names == {f"{n:02d}.txt" for n in range(40) if n not in faults}


def test_batches_leave_the_tables_as_they_are(tmp_path: Path) -> None:
    """Many small files with one worker, with three, and one at a time in a run each."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for n in range(30):
        (folder / f"note{n}.txt").write_text(f"# Note {n}\n\nIt is about lot {n * n}.\n")
    text_pdf(folder / "small.pdf", ["A page among the notes."])
    run_ingest(tmp_path / "one", folder, workers=1)
    run_ingest(tmp_path / "three", folder, workers=3)
    for path in sorted(folder.iterdir())[::7]:
        run_ingest(tmp_path / "grown", path)
    run_ingest(tmp_path / "grown", folder)
    assert tables(tmp_path / "one") == tables(tmp_path / "three") == tables(tmp_path / "grown")
    assert len(rows(tmp_path / "one", "documents")) == 31

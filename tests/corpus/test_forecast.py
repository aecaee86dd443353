"""`--dry-run`: what the plan says of real documents, and that it writes nothing."""

from __future__ import annotations

from pathlib import Path

import pymupdf
import pytest
from corpus_samples import text_pdf
from ingest_runs import configure, run_ingest

from corpus import forecast
from corpus.forecast import make_forecast
from corpus.page_counts import count_pages
from corpus.survey import survey
from flows._forecast import preview_ingest


def test_pages_are_those_that_another_library_counts(shared_data: Path) -> None:
    paths = sorted((shared_data / "corpus").rglob("*.pdf"))
    expected = {}
    for path in paths:
        with pymupdf.open(path) as document:
            expected[path] = len(document)
    assert count_pages(paths) == expected


def test_files_that_cannot_be_counted_are_left_out(shared_data: Path, tmp_path: Path) -> None:
    good = text_pdf(tmp_path / "good.pdf", ["one", "two"])
    bad = sorted((shared_data / "nasty" / "corrupt").glob("*.pdf"))
    counted = count_pages([*bad, tmp_path / "absent.pdf", good])
    assert counted[good] == 2
    assert tmp_path / "absent.pdf" not in counted


def test_a_sample_stands_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        text_pdf(tmp_path / f"{number}.pdf", [f"document {number}"] * 3)
    monkeypatch.setattr(forecast, "MAX_COUNTED", 10)
    config = configure(tmp_path / "w", tmp_path)
    made = make_forecast(config, survey(config), cores=1)
    assert made.counted_pdfs == 10
    assert made.pdfs == 30
    assert made.pages == pytest.approx(90, rel=0.05)


def test_the_plan_counts_what_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    text_pdf(folder / "a.pdf", ["one", "two", "three"])
    (folder / "b.txt").write_text("A note.")
    workspace = tmp_path / "w"
    config = configure(workspace, folder, workers=3)
    text = preview_ingest(config)
    assert "1 shard(s) to do" in text
    assert "2 document(s) to parse" in text
    assert "3 pages" in text
    assert "with 3 worker(s) on this machine" in text
    assert "WARNING" not in text
    assert not workspace.exists()
    run_ingest(workspace, folder)
    assert preview_ingest(config) == f"nothing to do: already published in {workspace}/corpus"
    (folder / "copy.txt").write_text("A note.")
    (folder / "c.txt").write_text("Another note.")
    assert "4: 1 twice, 2 done before, 1 document(s) to parse" in preview_ingest(config)


def test_twice_the_cores_take_half_the_time(shared_data: Path, tmp_path: Path) -> None:
    config = configure(tmp_path, shared_data / "corpus", table_detection="routed")
    seen = survey(config)
    two, four = (make_forecast(config, seen, cores=cores) for cores in (2, 4))
    assert two.total_core_s == four.total_core_s > 0
    busy = forecast.START_S
    assert two.wall_s - busy == pytest.approx(2 * (four.wall_s - busy))


def test_a_full_disk_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text_pdf(tmp_path / "a.pdf", ["one"])
    monkeypatch.setattr(forecast, "PAGE_BYTES", 1 << 60)
    text = preview_ingest(configure(tmp_path / "w", tmp_path / "a.pdf"))
    assert f"WARNING      {tmp_path / 'w'} has too little space" in text

"""What ingest says about the CPU time of documents and steps."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from pathlib import Path
from typing import get_args

import pytest
from ingest_runs import run_ingest

from corpus import report, step_clock, timings, worker_pool
from corpus.step_clock import StepClock, cpu_seconds
from workspace.manifest import Manifest


def spin(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def recorded(workspace: Path, manifest: Manifest) -> dict[str, timings.CpuSeconds]:
    return timings.read(workspace / "corpus", manifest)


def test_a_step_inside_another_is_not_counted_twice() -> None:
    clock = StepClock()
    start = cpu_seconds()
    with clock.measure("structure"):
        spin(0.02)
        with clock.measure("ocr"):
            spin(0.06)
    steps = clock.read()
    spent = cpu_seconds() - start
    assert steps["ocr"] >= 0.06
    assert steps["structure"] >= 0.02
    assert sum(steps.values()) == pytest.approx(spent, abs=0.02)
    clock.restart()
    assert sum(clock.read().values()) < 0.02


def test_every_document_has_its_seconds_by_step_and_the_manifest_their_sum(
    tmp_path: Path, manual: Path
) -> None:
    note = tmp_path / "note.md"
    note.write_text("# Timer\n\nThe timer counts to fifteen and then it starts again.\n")
    workspace = tmp_path / "w"
    manifest = run_ingest(workspace, manual, note)
    found = recorded(workspace, manifest)
    ids = [hashlib.sha256(path.read_bytes()).hexdigest() for path in (manual, note)]
    assert set(found) == set(ids)
    assert {"text", "render", "images", "tables", "structure", "summaries"} <= set(found[ids[0]])
    assert "parse" in found[ids[1]] and "render" not in found[ids[1]]
    for cpu_s in found.values():
        steps = sum(spent for step, spent in cpu_s.items() if step != timings.TOTAL)
        assert cpu_s[timings.TOTAL] == pytest.approx(steps, abs=1e-3) and steps > 0
    total = sum(cpu_s[timings.TOTAL] for cpu_s in found.values())
    assert sum(manifest.notes["cpu_s"].values()) == pytest.approx(2 * total, abs=0.01)


def test_documents_kept_from_an_earlier_run_keep_their_seconds(
    tmp_path: Path, manual: Path
) -> None:
    sources, workspace = tmp_path / "s", tmp_path / "w"
    sources.mkdir()
    shutil.copy(manual, sources)
    (sources / "gone.txt").write_text("The counter is read once.\n")
    before = recorded(workspace, run_ingest(workspace, sources))
    (sources / "gone.txt").unlink()
    (sources / "new.txt").write_text("The counter is read twice.\n")
    manifest = run_ingest(workspace, sources, sync=True)
    after = recorded(workspace, manifest)
    manual_id = hashlib.sha256(manual.read_bytes()).hexdigest()
    new_id = hashlib.sha256((sources / "new.txt").read_bytes()).hexdigest()
    assert set(after) == {manual_id, new_id}
    assert after[manual_id] == before[manual_id]
    # The note counts the work of this run alone.
    assert manifest.notes["cpu_s"][timings.TOTAL] == pytest.approx(after[new_id]["total"], abs=2e-3)
    assert [path.name for path in (workspace / "corpus").glob("timings-*")] == [
        f"timings-{manifest.key[:8]}.jsonl"
    ]


def test_the_time_of_killed_children_is_counted_as_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faulty = str(Path(__file__).with_name("faulty_worker.py"))
    monkeypatch.setattr(worker_pool, "WORKER_COMMAND", [sys.executable, faulty])
    source = tmp_path / "hang.txt"
    source.write_text("HANG\n")
    manifest = run_ingest(tmp_path / "w", source, document_timeout_s=2)
    (cpu_s,) = recorded(tmp_path / "w", manifest).values()
    assert manifest.rejects == {"timeout": 1}
    assert cpu_s["lost"] >= 2


def test_the_slowest_files_come_first_with_their_dearest_step(tmp_path: Path, manual: Path) -> None:
    (tmp_path / "note.txt").write_text("A short note.\n")
    (tmp_path / "empty.pdf").write_bytes(b"")
    files = [manual, tmp_path / "note.txt", tmp_path / "empty.pdf"]
    manifest = run_ingest(tmp_path / "w", *files)
    table = report.slowest_files(tmp_path / "w/corpus", manifest)
    spent = [row["cpu_s"] for row in table]
    assert spent == sorted(spent, reverse=True) and len(table) == 3
    (slow,) = [row for row in table if row["file"] == str(manual)]
    assert slow["pages"] == 4 and slow["format"] == "pdf"
    assert slow["dearest_step"] in {*get_args(step_clock.Step), step_clock.OTHER}
    assert slow["cpu_s_per_page"] == pytest.approx(slow["cpu_s"] / 4, abs=0.01)
    (lost,) = report.quarantined_files(tmp_path / "w/corpus", manifest)
    assert (
        lost["file"].endswith("empty.pdf") and lost["reason"] == "empty" and lost["page"] == "all"
    )


def test_a_line_cut_by_a_kill_is_passed_over(tmp_path: Path) -> None:
    with timings.TimingLog(tmp_path) as log:
        log.add("aa", {"parse": 1.0})
    (path,) = tmp_path.glob("cpu-*.jsonl")
    path.write_text(path.read_text() + json.dumps({"doc_id": "bb", "cpu_s": {}})[:9])
    assert timings.read_logs(tmp_path) == {"aa": {"parse": 1.0, "total": 1.0}}

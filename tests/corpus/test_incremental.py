"""Later runs: they add or mirror, cost what changed, and end where a first run would have."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from corpus_samples import text_pdf
from ingest_runs import configure, reasons, rows, run_ingest, tables

from corpus import changes, ingest, report, worker_pool
from corpus.changes import changes_since
from corpus.quarantine import Tries
from workspace.errors import CorruptWorkspaceError, UserError
from workspace.ids import hash_file
from workspace.manifest import Manifest, read_manifest

HERE = Path(__file__).parent


def note(path: Path, subject: str) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(f"The {subject} unit raises its interrupt when the last word has left.\n")
    return path


def names(workspace: Path) -> list[str]:
    return sorted(row["name"] for row in rows(workspace, "documents"))


def parsed(workspace: Path, *sources: Path, **settings: object) -> set[str]:
    """Ids of documents that a run would parse."""
    planned = ingest.plan(configure(workspace, *sources, **settings))
    return {doc_id for shard in planned.shards for doc_id in shard.items}


def test_a_later_run_adds_and_sync_mirrors(tmp_path: Path) -> None:
    first, second = note(tmp_path / "a/one.txt", "first"), note(tmp_path / "b/two.txt", "second")
    work = tmp_path / "w"
    run_ingest(work, first.parent)
    assert parsed(work, second.parent) == {hash_file(second)}
    added = run_ingest(work, second.parent)
    assert names(work) == ["one.txt", "two.txt"]
    assert added.counts_in["documents"] == 2 and added.notes["reused_documents"] == 1
    run_ingest(tmp_path / "both", second, first)
    assert tables(work) == tables(tmp_path / "both")
    # Either folder alone asks for what is there already.
    assert ingest.plan(configure(work, first.parent)).published == added

    first.unlink()
    note(tmp_path / "a/other.txt", "other")
    run_ingest(work, first.parent)
    assert names(work) == ["one.txt", "other.txt", "two.txt"]
    assert parsed(work, first.parent, sync=True) == set()
    run_ingest(work, first.parent, sync=True)
    assert names(work) == ["other.txt"]
    run_ingest(tmp_path / "alone", first.parent)
    assert tables(work) == tables(tmp_path / "alone")


def test_new_bytes_under_a_name_replace_the_old_document(tmp_path: Path) -> None:
    path = note(tmp_path / "a.txt", "first")
    copy = Path(shutil.copy(path, tmp_path / "copy.txt"))
    run_ingest(tmp_path / "w", path, copy)
    old = hash_file(path)
    note(path, "renewed")
    run_ingest(tmp_path / "w", path)
    assert {row["uri"]: row["doc_id"] for row in rows(tmp_path / "w", "documents")} == {
        str(path): hash_file(path),
        str(copy): old,
    }
    note(copy, "renewed")
    run_ingest(tmp_path / "w", copy)
    (document,) = rows(tmp_path / "w", "documents")
    assert document["uris"] == [str(path), str(copy)]


def test_other_settings_read_earlier_files_again_and_keep_those_that_are_gone(
    tmp_path: Path,
) -> None:
    gone = text_pdf(tmp_path / "gone.pdf", ["It goes soon."])
    here = text_pdf(tmp_path / "here.pdf", ["This one stays where it is."])
    copy = Path(shutil.copy(here, tmp_path / "z.pdf"))
    new = text_pdf(tmp_path / "new.pdf", ["A third file comes with other settings."])
    work = tmp_path / "w"
    run_ingest(work, gone, here, copy, page_dpi=50)
    lost = hash_file(gone)
    gone.unlink()
    here.unlink()  # its copy holds the same bytes
    assert parsed(work, new, page_dpi=60) == {hash_file(new), hash_file(copy)}
    manifest = run_ingest(work, new, page_dpi=60)
    assert {row["doc_id"]: row["image_dpi"] for row in rows(work, "pages")} == {
        lost: 50,
        hash_file(copy): 60,
        hash_file(new): 60,
    }
    assert list(manifest.notes["kept_from_other_settings"]) == [lost]
    assert "1 document(s) keep the rows" in report.markdown(work / "corpus", manifest)
    assert ingest.plan(configure(work, new, page_dpi=60)).published == manifest
    # When the file is back, it is read with the settings of the day.
    text_pdf(gone, ["It goes soon."])
    assert hash_file(gone) == lost
    again = run_ingest(work, gone, page_dpi=60)
    assert not again.notes["kept_from_other_settings"]
    assert {row["image_dpi"] for row in rows(work, "pages")} == {60}


def test_a_threshold_of_duplicates_parses_nothing(tmp_path: Path) -> None:
    path = note(tmp_path / "a.txt", "first")
    run_ingest(tmp_path / "w", path)
    planned = ingest.plan(configure(tmp_path / "w", path, near_duplicate_similarity=0.9))
    assert planned.published is None and not planned.shards


def test_damage_is_mended_or_named(tmp_path: Path) -> None:
    one, two = note(tmp_path / "one.txt", "first"), note(tmp_path / "two.txt", "second")
    work = tmp_path / "w"
    run_ingest(work, one)
    run_ingest(work, two)
    before = tables(work)

    def lose(table: str) -> None:
        for path in (work / "corpus" / table).glob("*.parquet"):
            path.unlink()

    for path in (work / "corpus/history").iterdir():
        path.unlink()
    planned = ingest.plan(configure(work, two))
    assert planned.published is None and not planned.shards  # published anew, parsed never
    lose("elements")
    run_ingest(work, two)  # the other file is read again, too
    assert tables(work) == before
    lose("elements")
    one.unlink()
    with pytest.raises(UserError, match=r"one\.txt is no longer there.*--sync"):
        ingest.plan(configure(work, two))
    lose("documents")
    with pytest.raises(CorruptWorkspaceError, match="--sync"):
        ingest.plan(configure(work, two))
    run_ingest(work, two, sync=True)
    assert names(work) == ["two.txt"]


def test_changes_between_manifests(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    docs = tmp_path / "docs"
    kept, edited = note(docs / "kept.txt", "kept"), note(docs / "edited.txt", "old")
    moved = note(docs / "moved.txt", "moved")
    first = run_ingest(tmp_path / "w", docs)
    folder = tmp_path / "w/corpus"
    ids = {path.name: hash_file(path) for path in (kept, edited, moved)}
    note(edited, "new")
    moved.rename(docs / "renamed.txt")
    added = note(docs / "added.txt", "added")
    second = run_ingest(tmp_path / "w", docs, sync=True)
    found = changes_since(folder, first.key)
    new = hash_file(edited)
    assert found.added == tuple(sorted([hash_file(added), new]))
    assert found.removed == (ids["edited.txt"],)
    assert found.changed == (ids["moved.txt"],)
    assert found.replaced == {str(edited): (ids["edited.txt"], new)}
    assert not changes_since(folder, second.key)
    assert len(changes_since(folder, changes.FIRST).added) == 4
    with pytest.raises(UserError, match="first"):
        changes_since(folder, "0123456789abcdef")

    assert changes.main(["--workspace", str(tmp_path / "w"), "--since", first.key]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == [ids["edited.txt"]]
    assert changes.main(["--workspace", str(tmp_path / "w"), "--since", "nokey"]) == 2
    assert changes.main(["--workspace", str(tmp_path / "nothing"), "--since", "first"]) == 2


def test_the_history_is_bounded(tmp_path: Path) -> None:
    for n in range(changes.HISTORY + 3):
        kept = changes.write_history(tmp_path, f"{n:016x}", {})
        changes.forget(tmp_path, kept)
    found = sorted(path.name for path in (tmp_path / "history").iterdir())
    assert len(found) == changes.HISTORY and found[-1] == f"000023-{22:016x}.json"


@pytest.fixture
def faulty_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, str(HERE / "faulty_worker.py")]
    monkeypatch.setattr(worker_pool, "WORKER_COMMAND", command)


def manifest_of(workspace: Path) -> Manifest:
    manifest = read_manifest(workspace / "corpus")
    assert manifest is not None
    return manifest


@pytest.mark.usefixtures("faulty_worker")
def test_what_may_succeed_is_tried_a_few_times_and_then_left_alone(tmp_path: Path) -> None:
    slow = tmp_path / "slow.txt"
    slow.write_text("HANG\n")
    fine, broken = note(tmp_path / "fine.txt", "fine"), tmp_path / "broken.pdf"
    broken.write_bytes(b"%PDF-1.7\n1 0 obj\nnothing follows")
    work, wanted = tmp_path / "w", hash_file(slow)
    limits = {"document_timeout_s": 5.0, "max_tries": 2}
    first = run_ingest(work, slow, fine, broken, **limits)
    assert reasons(work)["slow.txt"] == "timeout"
    before = tables(work)

    assert parsed(work, fine, **limits) == {wanted}
    again = run_ingest(work, fine, **limits)
    # It failed as before: what is published stays, and stages that read it have nothing to do.
    assert again.key == first.key and tables(work) == before
    assert Tries.read(work / "corpus").of(wanted) == 2
    assert ingest.plan(configure(work, fine, **limits)).published == first
    text = report.markdown(work / "corpus", first)
    assert f"| `{slow}` | all | parse | timeout | 2 |" in text
    assert "raise page_timeout_s or document_timeout_s" in text

    higher = {**limits, "document_timeout_s": 6.0}
    assert parsed(work, fine, **higher) == {wanted}
    both = parsed(work, fine, retry_quarantined=True, **limits)
    assert both == {wanted, hash_file(broken)}


@pytest.mark.usefixtures("faulty_worker")
def test_a_try_that_succeeds_is_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fine = tmp_path / "slow.txt", note(tmp_path / "fine.txt", "fine")
    slow.write_text("HANG in the faulty worker alone, as if the machine had been busy.\n")
    work = tmp_path / "w"
    # A cold parser process takes seconds to import: less would cost the other file, too.
    first = run_ingest(work, slow, fine, document_timeout_s=12)
    monkeypatch.undo()
    second = run_ingest(work, fine)
    assert second.key != first.key and names(work) == ["fine.txt", "slow.txt"]
    assert changes_since(work / "corpus", first.key).changed == (hash_file(slow),)
    run_ingest(tmp_path / "fresh", slow, fine)
    assert tables(work) == tables(tmp_path / "fresh")
    assert ingest.plan(configure(work, fine)).published == second


@pytest.mark.usefixtures("faulty_worker")
def test_documents_and_pages_add_up(tmp_path: Path) -> None:
    faults = {2: "CRASH", 4: "RAISE"}
    docs = tmp_path / "docs"
    docs.mkdir()
    text_pdf(docs / "some.pdf", [f"Page {n} {faults.get(n, 'is fine')}." for n in range(1, 6)])
    text_pdf(docs / "all.pdf", ["A page.", "Another page."])
    shutil.copy(docs / "all.pdf", docs / "copy.pdf")
    (docs / "empty.pdf").touch()
    manifest = run_ingest(tmp_path / "w", docs)
    given, out = manifest.counts_in, manifest.counts_out
    assert (given["documents"], given["pages"]) == (3, 7)
    assert (out["documents"], out["quarantined/documents"]) == (2, 1)
    assert (out["pages/read"], out["quarantined/pages"]) == (5, 2)
    assert out["pages"] == 7

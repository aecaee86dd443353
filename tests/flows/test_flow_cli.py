"""What a flow's command line returns, prints and leaves on disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import tally
from small_disk import fill, mounted, remount

from flows._cli import main
from workspace.locking import stage_lock
from workspace.manifest import read_manifest
from workspace.paths import Workspace


def run(*arguments: object) -> int:
    return main(tally.DOOR, [str(argument) for argument in arguments])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "W"


@pytest.mark.usefixtures("prefect_server")
class TestWithPrefect:
    def test_work_is_done_and_summed_up(
        self, texts: Path, place: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run(texts / "a.txt", texts / "b.txt", "--workspace", place) == 0
        manifest = read_manifest(place / "corpus")
        assert manifest is not None
        assert manifest.counts_out["words"] == 5
        shown = capsys.readouterr().out
        assert "tally: done" in shown
        assert "words 5" in shown
        assert str(place / "corpus" / "report.html") in shown

    def test_quarantined_inputs_end_with_3_in_every_run(
        self, tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        empty = tmp_path / "empty.txt"
        empty.touch()
        assert run(empty, "--workspace", place) == 3
        assert "1 input(s) quarantined" in capsys.readouterr().out
        assert run(empty, "--workspace", place) == 3

    def test_a_users_fault_inside_a_task_ends_with_1_and_no_traceback(
        self, tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        source = tmp_path / "bad.txt"
        source.write_text("refuse")
        assert run(source, "--workspace", place) == 1
        shown = capsys.readouterr().err
        assert f"tally: {source}: cannot be counted: remove it" in shown
        assert "Traceback" not in shown

    @pytest.mark.parametrize("pages", [0, 3, "ro"])
    def test_a_full_or_read_only_disk_is_named_and_the_run_goes_on_later(
        self, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], pages: int | str
    ) -> None:
        """Full from the start, or after some files were written."""
        with mounted(tmp_path / "small", 1 << 10) as disk:
            arguments = (texts / "a.txt", texts / "b.txt", "--workspace", disk / "W")
            filler = fill(disk)
            if pages == "ro":
                remount(disk, "ro")
            else:
                os.truncate(filler, filler.stat().st_size - 4096 * int(pages))
            assert run(*arguments) == 1
            said = capsys.readouterr().err
            assert f"tally: cannot write {disk / 'W'}" in said
            assert ("is read-only" if pages == "ro" else "the disk is full") in said
            assert "start the same command again" in said
            assert "Traceback" not in said
            if pages == "ro":
                remount(disk, "rw")
            filler.unlink()
            assert run(*arguments) == 0
            manifest = read_manifest(disk / "W" / "corpus")
            assert manifest is not None
            assert manifest.counts_out["words"] == 5

    def test_a_fault_of_ours_keeps_its_traceback(self, tmp_path: Path, place: Path) -> None:
        source = tmp_path / "bad.txt"
        source.write_text("explode")
        with pytest.raises(RuntimeError, match="a fault of ours"):
            run(source, "--workspace", place)

    def test_a_transient_error_is_tried_again_and_no_other(
        self, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tally.TASKS.process, "retry_delay_seconds", [0.0])
        monkeypatch.setattr(tally.TASKS.process, "retry_jitter_factor", None)
        source = tmp_path / "busy.txt"
        source.write_text("busy now")
        assert run(source, "--workspace", place) == 0
        assert (place / "corpus" / ".work" / "tally" / "tried").exists()

    def test_a_killed_run_leaves_its_work_and_the_next_one_continues(
        self,
        texts: Path,
        place: Path,
        prefect_server: str,
        start_tally: Callable[..., subprocess.Popen[str]],
    ) -> None:
        arguments = [str(texts / "a.txt"), str(texts / "b.txt"), "--workspace", str(place)]
        killed = start_tally([*arguments, "--pause-s", "3"], PREFECT_API_URL=prefect_server)
        first = place / "corpus" / ".work" / "tally" / "0.json"
        _wait_for(first.exists, killed)
        killed.kill()
        killed.communicate()
        by_the_killed = first.read_text()
        assert read_manifest(place / "corpus") is None
        assert run(*arguments) == 0
        manifest = read_manifest(place / "corpus")
        assert manifest is not None
        assert manifest.counts_out["words"] == 5
        assert first.read_text() == by_the_killed

    def test_ctrl_c_ends_with_130_and_says_how_to_continue(
        self,
        texts: Path,
        place: Path,
        prefect_server: str,
        start_tally: Callable[..., subprocess.Popen[str]],
    ) -> None:
        arguments = [str(texts / "a.txt"), str(texts / "b.txt"), "--workspace", str(place)]
        process = start_tally([*arguments, "--pause-s", "30"], PREFECT_API_URL=prefect_server)
        _wait_for((place / "corpus" / ".work" / "tally").exists, process)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
        assert process.returncode == 130
        assert "run the same command again to continue" in said
        assert "Traceback" not in said


def test_published_work_is_skipped_without_prefect(
    texts: Path, place: Path, prefect_server: str, start_tally: Callable[..., subprocess.Popen[str]]
) -> None:
    arguments = [str(texts / "a.txt"), "--workspace", str(place)]
    assert run(*arguments) == 0
    # No API answers at that port: the run would fail if it asked for one.
    again = start_tally(arguments, PREFECT_API_URL="http://127.0.0.1:9/api")
    shown, said = again.communicate(timeout=120)
    assert again.returncode == 0, said
    assert "nothing to do: already published" in shown


def test_an_api_that_does_not_answer_is_named(
    texts: Path, place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert run(texts / "a.txt", "--workspace", place) == 1
    assert "http://127.0.0.1:9/api does not answer" in capsys.readouterr().err


def test_bad_usage_ends_with_2(texts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(texts / "a.txt", "--shortest", "99") == 2
    assert "--shortest" in capsys.readouterr().err


def test_a_missing_input_ends_with_1(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("nowhere.txt", "--workspace", place) == 1
    assert "nowhere.txt is not a file" in capsys.readouterr().err


def test_a_second_writer_is_told_who_is_writing(
    texts: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with stage_lock(Workspace(place), tally.STAGE):
        assert run(texts / "a.txt", "--workspace", place) == 1
    assert "is being written by process" in capsys.readouterr().err
    assert not (place / "corpus").exists()


def test_the_package_folder_is_no_workspace(capsys: pytest.CaptureFixture[str]) -> None:
    import workspace

    folder = Path(str(workspace.__file__)).parent
    assert run("a.txt", "--workspace", folder) == 2
    assert "holds the program itself" in capsys.readouterr().err


@pytest.mark.parametrize("below", ["", "sub/folder"])
def test_a_file_is_no_workspace(
    texts: Path, below: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = texts / "b.txt"
    assert run(texts / "a.txt", "--workspace", file / below) == 2
    assert f"--workspace: {file} is no folder" in capsys.readouterr().err
    assert file.read_text() == "four five"


def test_dry_run_changes_nothing(
    texts: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(texts / "a.txt", "--workspace", place, "--dry-run") == 0
    assert "1 shard(s) to do" in capsys.readouterr().out
    assert not (place / "corpus").exists()


@pytest.mark.parametrize(
    "flow",
    [
        "ingest",
        "build_graph",
        "build_datasets",
        "train",
        "score",
        "promote",
        "pipeline",
        "reconcile",
        "serve",
        "deploy",
    ],
)
def test_help_needs_neither_prefect_nor_a_model_library(flow: str) -> None:
    heavy = ("prefect", "torch", "transformers", "spacy", "unstructured", "lm_eval", "matplotlib")
    code = (
        "import runpy, sys\n"
        f"sys.argv = ['{flow}', '--help']\n"
        "try:\n"
        f"    runpy.run_module('flows.{flow}', run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    assert end.code == 0\n"
        f"print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr.strip() == "[]"
    assert f"python -m flows.{flow}" in done.stdout


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)

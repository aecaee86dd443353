from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from training import checkpoints


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    (tmp_path / "attempts" / "1").mkdir(parents=True)
    return tmp_path


def save(stage: Path, step: int, *, attempt: int = 1, finish: bool = True) -> Path:
    folder = stage / "checkpoints" / str(attempt) / ".incomplete" / f"checkpoint-{step}"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"w" * 100)
    (folder / "optimizer.pt").write_bytes(b"o" * 200)
    if finish:
        return checkpoints.complete(
            folder, step=step, attempt=attempt, world_size=1, attempts=stage / "attempts"
        )
    return folder


def test_the_newest_complete_one_is_resumed(stage: Path) -> None:
    save(stage, 9)
    save(stage, 10)
    save(stage, 11, finish=False)
    newest = checkpoints.newest_complete(stage / "checkpoints")
    assert newest is not None and newest.step == 10


def test_nothing_to_resume_from(stage: Path) -> None:
    assert checkpoints.newest_complete(stage / "checkpoints") is None


@pytest.mark.parametrize("damage", ["missing", "short", "marker"])
def test_a_damaged_checkpoint_is_not_resumed(stage: Path, damage: str) -> None:
    save(stage, 10)
    broken = save(stage, 20)
    if damage == "missing":
        (broken / "optimizer.pt").unlink()
    elif damage == "short":
        (broken / "optimizer.pt").write_bytes(b"o" * 199)
    else:
        (broken / checkpoints.COMPLETE_NAME).write_text('{"step": 2')
    newest = checkpoints.newest_complete(stage / "checkpoints")
    assert newest is not None and newest.step == 10


def test_pruning_keeps_the_newest_complete_ones(stage: Path) -> None:
    for step in (10, 20, 30):
        save(stage, step)
    save(stage, 40, finish=False)
    removed = checkpoints.prune(stage / "checkpoints", keep=2, attempt=1)
    assert sorted(path.name for path in removed) == ["checkpoint-10", "checkpoint-40"]
    kept = checkpoints.complete_checkpoints(stage / "checkpoints")
    assert [checkpoint.step for checkpoint in kept] == [20, 30]


def test_pruning_never_takes_the_last_complete_one(stage: Path) -> None:
    save(stage, 10)
    for step in (20, 30, 40):
        save(stage, step, finish=False)
    checkpoints.prune(stage / "checkpoints", keep=1, attempt=1)
    newest = checkpoints.newest_complete(stage / "checkpoints")
    assert newest is not None and newest.step == 10


def test_a_replaced_attempt_cannot_publish_or_remove(stage: Path) -> None:
    """Ranks that outlived their attempt go on writing beside the new one."""
    (stage / "attempts" / "2").mkdir()
    newer = save(stage, 10, attempt=2)
    stale = save(stage, 50, attempt=1, finish=False)
    with pytest.raises(checkpoints.FencedError):
        checkpoints.complete(stale, step=50, attempt=1, world_size=1, attempts=stage / "attempts")
    unfinished = save(stage, 20, attempt=2, finish=False)
    checkpoints.prune(stage / "checkpoints", keep=1, attempt=1)
    assert unfinished.exists(), "the newer attempt may be writing it right now"
    newest = checkpoints.newest_complete(stage / "checkpoints")
    assert newest is not None and newest.path == newer


def test_steps_are_ordered_as_numbers(stage: Path) -> None:
    save(stage, 9)
    save(stage, 100)
    newest = checkpoints.newest_complete(stage / "checkpoints")
    assert newest is not None and newest.step == 100


def test_a_replaced_generation_cannot_publish(stage: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that was given up may still have living ranks of the same attempt."""
    (stage / "attempts" / "1" / checkpoints.GENERATION_NAME).write_text("2\n")
    stale = save(stage, 50, finish=False)
    with pytest.raises(checkpoints.FencedError, match="generation 1"):
        checkpoints.complete(stale, step=50, attempt=1, world_size=1, attempts=stage / "attempts")
    monkeypatch.setenv(checkpoints.GENERATION_VARIABLE, "2")
    folder = checkpoints.unfinished_folder(stage / "checkpoints", 1) / "checkpoint-50"
    assert folder != stale, "two generations never write into one folder"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(b"w")
    published = checkpoints.complete(
        folder, step=50, attempt=1, world_size=1, attempts=stage / "attempts"
    )
    newest = checkpoints.newest_complete(stage / "checkpoints")
    assert newest is not None and (newest.path, newest.attempt) == (published, 1)
    assert newest.writer == "1.2"


def test_a_writer_whose_folder_was_pruned_cannot_publish(stage: Path) -> None:
    """The newer attempt starts between the writer's check and its rename."""
    stale = save(stage, 50, finish=False)
    checkpoints.prune(stage / "checkpoints", keep=2, attempt=2)
    with pytest.raises(checkpoints.FencedError, match="removed"):
        checkpoints.complete(stale, step=50, attempt=1, world_size=1, attempts=stage / "attempts")
    assert checkpoints.newest_complete(stage / "checkpoints") is None


def test_saving_a_step_again_keeps_what_is_there(stage: Path) -> None:
    """Asked to stop right after a regular save."""
    first = save(stage, 10)
    assert save(stage, 10) == first
    newest = checkpoints.newest_complete(stage / "checkpoints")
    assert newest is not None and newest.path == first
    assert not list((stage / "checkpoints").rglob("checkpoint-10/checkpoint-10"))


def test_changed_bytes_are_found_by_their_hash(stage: Path) -> None:
    folder = save(stage, 20, finish=False)
    hashes = {path.name: checkpoints.hash_file(path) for path in folder.iterdir()}
    published = checkpoints.complete(
        folder, step=20, attempt=1, world_size=1, attempts=stage / "attempts", hashes=hashes
    )
    (published / "optimizer.pt").write_bytes(b"o" * 199 + b"p")
    newest = checkpoints.newest_complete(stage / "checkpoints")
    assert newest is not None, "the size is the same"
    assert checkpoints.damaged_files(newest, sorted(hashes)) == ["optimizer.pt"]
    checkpoints.set_aside(newest)
    assert checkpoints.newest_complete(stage / "checkpoints") is None


def test_what_a_killed_pruning_left_goes_with_the_next(stage: Path) -> None:
    save(stage, 10)
    left = stage / "checkpoints" / "1" / ".removed-0a"
    (left / "deep").mkdir(parents=True)
    checkpoints.prune(stage / "checkpoints", keep=1, attempt=1)
    assert not left.exists()
    assert checkpoints.newest_complete(stage / "checkpoints") is not None


def test_who_looks_while_another_prunes_finds_the_newest(stage: Path) -> None:
    """The supervisor, the run page and the coordinator read beside ranks that save and prune."""

    def train() -> None:
        for step in range(2, 300):
            save(stage, step)
            checkpoints.prune(stage / "checkpoints", keep=1, attempt=1)

    save(stage, 1)
    seen = []
    with ThreadPoolExecutor(1) as pool:
        training = pool.submit(train)
        while not training.done():
            newest = checkpoints.newest_complete(stage / "checkpoints")
            assert newest is not None
            seen.append(newest.step)
        training.result()
    assert seen == sorted(seen)
    assert len(set(seen)) > 10, "it looked while the other pruned"

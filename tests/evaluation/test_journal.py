"""The answers' journal after a kill, and on a full disk: nothing that was whole is lost."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_disk import fill, mounted

from evaluation.benchmarks.verilog.answers import VerdictLine, Verdicts
from evaluation.journal import AnswerKey, Journal
from evaluation.score import run_score
from evaluation.score_config import ScoreConfig
from workspace.paths import Workspace

sys.path.insert(0, str(Path(__file__).parents[1] / "workspace"))
from chat_server import Answer, completion, serve

LONG = "x" * 1500
PAGE = 4096


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """64 kB, mounted where the answers of a workspace go."""
    with mounted(Workspace(tmp_path / "ws").answers, 64) as place:
        yield place


def leave(filler: Path, pages: int) -> None:
    """Take away all of the disk's room but so many pages."""
    os.truncate(filler, filler.stat().st_size - PAGE * pages)


def test_an_answer_that_the_disk_did_not_take_leaves_no_part(small_disk: Path) -> None:
    filler = fill(small_disk)
    leave(filler, 1)
    journal = Journal(small_disk / "answers.jsonl")
    refused = 0
    for number in range(6):  # two fit, and then a short one once more
        text = LONG if number < 5 else "short"
        try:
            journal.append({AnswerKey(f"row{number}", 0): text})
        except OSError as error:
            assert error.filename == str(journal.path)
            refused += 1
    assert refused == 3
    assert [key.row_id for key in journal.answers] == ["row0", "row1", "row5"]
    assert Journal(journal.path).answers == journal.answers


def test_a_verdict_that_the_disk_did_not_take_leaves_no_part(small_disk: Path) -> None:
    filler = fill(small_disk)
    leave(filler, 1)
    verdicts = Verdicts(small_disk / "verdicts.jsonl")
    lines = [VerdictLine("p", n, "mismatch", LONG, "mismatch", f"{n}") for n in range(3)]
    verdicts.add(lines[:2])
    with pytest.raises(OSError, match="No space left"):
        verdicts.add(lines[2:])
    verdicts.add([VerdictLine("p", 3, "pass", "", "pass", "3")])
    verdicts.close()
    assert [key for _, key in Verdicts(verdicts.path).known] == [0, 1, 3]


@pytest.mark.parametrize(
    "damaged",
    [
        '["b", 0, "an["c", 0, "joined"]',
        '["b", 0, "x"]["c", 0, "joined"]',
        "\0\0\0",
        "",
        "[1, 2]",
        '{"b": 0}',
        '["b", "0", "x"]',
        '["b", 0, "\xff"',
    ],
)
def test_a_damaged_line_is_named_and_costs_its_own_answer_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, damaged: str
) -> None:
    path = tmp_path / "answers.jsonl"
    text = f'["a", 0, "one"]\n{damaged}\n["d", 1, "two"]\n["e", 0, "to'
    path.write_bytes(text.encode("latin-1"))
    with caplog.at_level(logging.WARNING):
        journal = Journal(path)
    assert journal.answers == {AnswerKey("a", 0): "one", AnswerKey("d", 1): "two"}
    assert f"{path}, line 2 is damaged" in caplog.text
    assert f"{path}, line 4 is torn" in caplog.text
    journal.append({AnswerKey("b", 0): "again"})
    assert Journal(path).answers == journal.answers


def test_a_score_on_a_full_disk_goes_on_with_what_was_kept(
    tmp_path: Path, small_disk: Path
) -> None:
    own = tmp_path / "own.jsonl"
    names = [f"q{number}" for number in range(8)]
    lines = [{"id": name, "prompt": f"{name}?", "answer": LONG} for name in names]
    own.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def canned(body: dict[str, Any], number: int) -> Answer:
        return completion(LONG)

    with serve(canned) as server:
        config = ScoreConfig(
            workspace=tmp_path / "ws", models=(f"m={server.url}#m",), benchmarks=(f"own={own}",),
            concurrency=4,
        )  # fmt: skip
        filler = fill(small_disk)
        leave(filler, 2)
        with pytest.raises(OSError, match="No space left") as failed:
            run_score(config)
        assert str(small_disk) in str(failed.value)
        [path] = small_disk.glob("*.jsonl")
        kept = {key.row_id for key in Journal(path).answers}
        assert 1 <= len(kept) < 8
        filler.unlink()
        first = len(server.requests)
        result = run_score(config)
        asked = [body["messages"][-1]["content"][:2] for body in server.requests[first:]]
    assert Counter(asked) == Counter(name for name in names if name not in kept)
    [found] = json.loads((result.directory / "results.json").read_text())["benchmarks"]
    assert found["scores"]["m"]["accuracy"]["value"] == 1

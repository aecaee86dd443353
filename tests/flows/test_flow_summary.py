"""What a flow says at its end, in a terminal and on its page in the UI."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluation.publication import Summary as Evaluation
from flows._scores import score_lines, score_rows
from flows._summary import Summary, markdown, print_summary, summarise_stage
from tasks._markdown import count_rows, stage_markdown
from workspace.manifest import Manifest
from workspace.stage import StageResult


def result(folder: Path, *, skipped: bool = False, **counts: dict[str, int]) -> StageResult:
    manifest = Manifest(
        stage="corpus", key="k", fingerprint="f", settings={}, inputs={}, code_version="v",
        created="now", seconds=2.0, **counts,
    )  # type: ignore[arg-type]  # fmt: skip
    return StageResult(manifest, folder, skipped)


def test_a_summary_counts_what_was_made_and_what_was_left_out(tmp_path: Path) -> None:
    rejects = {"corrupt": 1, "encrypted": 5, "empty": 3, "timeout": 2}
    (tmp_path / "report-12ab.md").touch()
    summary = summarise_stage("ingest")(
        result(
            tmp_path, counts_out={"pages": 1200, "test/skill": 3, "quarantined": 2}, rejects=rejects
        )
    )
    (line,) = summary.stages
    assert line.done == "pages 1,200, quarantined 2"
    assert line.left_out == "11: encrypted 5, empty 3, timeout 2 …"
    assert summary.quarantined == 2
    assert summary.headline == "ingest: done, 2 input(s) quarantined"
    assert summary.places == {"output": tmp_path, "report": tmp_path / "report-12ab.md"}


def test_a_path_is_never_broken_over_lines(capsys: pytest.CaptureFixture[str]) -> None:
    path = Path("/" + "/".join(["folder with spaces"] * 20))
    print_summary(Summary("x: done", places={"output": path}), seconds=1.0)
    assert str(path) in capsys.readouterr().out


def test_markdown_from_hostile_names_is_inert(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=alert(1)>`|\n# big"
    text = stage_markdown("ingest", result(tmp_path, rejects={hostile: 1}))
    text += markdown(Summary(hostile, notes=(hostile,), places={hostile: Path("/p")}))
    assert "<img" not in text
    assert "\n# big" not in text


def test_every_count_is_a_row_of_the_table(tmp_path: Path) -> None:
    rows = count_rows(
        result(tmp_path, counts_in={"files": 3}, counts_out={"pages": 2}, rejects={"corrupt": 1})
    )
    assert [tuple(row.values()) for row in rows] == [
        ("in", "files", 3), ("out", "pages", 2), ("rejected", "corrupt", 1),
    ]  # fmt: skip


def test_scores_put_the_baseline_first_and_tell_the_paired_difference() -> None:
    score = {"value": 0.25, "low": 0.1, "high": 0.4, "problems": 20}
    better = {"value": 0.75, "low": 0.6, "high": 0.9, "problems": 20}
    model = {"path": "/m", "hash": "h", "registered": True}
    evaluation = Evaluation.model_validate(
        {
            "id": "e", "key": "k", "dataset": "dsm", "inputs": {}, "sandbox": "bwrap",
            "models": [{"label": "dsm:1 base", **model}, {"label": "dsm:1", **model}],
            "benchmarks": [
                {
                    "name": "open_book", "problems": 20, "samples_per_problem": 1,
                    "metric": "accuracy", "without_verdict": 2, "seconds": {},
                    "scores": {"dsm:1": {"accuracy": better}, "dsm:1 base": {"accuracy": score}},
                    "outcomes": {},
                    "comparisons": [
                        {
                            "model": "dsm:1", "baseline": "dsm:1 base", "metric": "accuracy",
                            "problems": 20, "difference": 0.5, "low": 0.3, "high": 0.7,
                            "wins": 11, "losses": 1, "p_value": 0.01, "finding": "gain",
                        }
                    ],
                }
            ],
        }
    )  # fmt: skip
    lines = [" ".join(line.split()) for line in score_lines(evaluation)]
    assert lines == [
        "open_book (accuracy, 20 problems)",
        "dsm:1 base 25.0% [10.0%, 40.0%]",
        "dsm:1 75.0% [60.0%, 90.0%]",
        "dsm:1 minus dsm:1 base: +50.0 points [+30.0, +70.0] on 20 pairs, p = 0.01: gain",
        "2 answer(s) without a verdict",
    ]
    assert [row["model"] for row in score_rows(evaluation)] == ["dsm:1 base", "dsm:1"]

"""The leaderboard: only comparable scores in one group, honest ranks, published ones beside."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from published_inputs import add_model, of, publish_evaluation

from evaluation import leaderboard
from evaluation.benchmarks.verilog.public_set import UPSTREAM
from evaluation.leaderboard import Board, Group, build
from evaluation.leaderboard_page import render
from evaluation.published_scores import read_published
from workspace.errors import UserError
from workspace.paths import Workspace

QA = "domain_qa_closed_book"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = Workspace(tmp_path / "W")
    for run in ("one", "two", "three"):
        add_model(workspace, run)
    return workspace


def score(workspace: Workspace, name: str, run: str, right: int, **more: Any) -> None:
    label = f"dsm:{['one', 'two', 'three'].index(run) + 1}"
    path = workspace.run(run) / "final"
    publish_evaluation(workspace, name, {label: path}, {QA: {label: of(200, right)}}, **more)


def ranks(group: Group) -> list[tuple[int, str]]:
    return [(row.rank, row.model) for row in group.rows]


def test_models_that_their_intervals_do_not_tell_apart_share_a_rank(workspace: Workspace) -> None:
    score(workspace, "e1", "one", 100)
    score(workspace, "e2", "two", 104)
    score(workspace, "e3", "three", 180)
    [group] = build(workspace).groups
    assert ranks(group) == [(1, "dsm:3"), (2, "dsm:2"), (2, "dsm:1")]
    assert [row.score.value for row in group.rows] == [0.9, 0.52, 0.5]


@pytest.mark.parametrize(
    "other",
    [
        {"data_hash": "d2"},
        {"grader_version": "g2"},
        {"tool_versions": {"iverilog": "Icarus Verilog 11.0"}},
        {"data_hash": ""},
        {"settings": {"max_answer_tokens": 9000}},
        {"settings": {"endpoint_api": "completions"}},
        {"inputs": {"dtype": "bfloat16"}},
    ],
)
def test_another_measure_is_another_group(workspace: Workspace, other: dict[str, Any]) -> None:
    score(workspace, "e1", "one", 100)
    score(workspace, "e2", "two", 180, **other)
    groups = build(workspace).groups
    assert sorted(ranks(group) for group in groups) == [[(1, "dsm:1")], [(1, "dsm:2")]]


def test_official_scores_are_a_group_of_their_own(workspace: Workspace) -> None:
    score(workspace, "e1", "one", 100)
    results = workspace.evaluation("e1") / "results.json"
    summary = json.loads(results.read_text())
    scores = summary["benchmarks"][0]["scores"]["dsm:1"]
    scores["official_accuracy"] = {**scores["accuracy"], "value": 0.4}
    results.write_text(json.dumps(summary))
    found = {group.rules: group.rows[0].score.value for group in build(workspace).groups}
    assert found == {"audited": 0.5, "official": 0.4}


def test_published_scores_are_shown_and_never_ranked(workspace: Workspace) -> None:
    score(workspace, "e1", "one", 100)
    board = build(workspace)
    assert {row.model for group in board.groups for row in group.rows} == {"dsm:1"}
    gpt4o = next(s for s in board.published if s.model == "GPT-4o")
    assert (gpt4o.benchmark, gpt4o.value) == ("verilog_eval_v2_spec_to_rtl", 0.63)
    assert "2408.11053" in gpt4o.source
    assert "126.0%" in gpt4o.twice
    page = render(board)
    row = re.search(r"<tr>\s*<td class=\"n\">(.)</td>\s*<td>GPT-4o", page)
    assert row is not None
    assert row[1] == "–"


def test_every_published_score_has_a_source_and_a_known_benchmark() -> None:
    from evaluation.benchmarks.verilog.problems import READERS

    published = read_published()
    scores = [score for name in published.benchmarks for score in published.of(name)]
    assert len(scores) > 30
    assert all(score.source and 0 < score.value < 1 for score in scores)
    assert {*published.benchmarks} <= {*READERS, "rtllm_v2.0", "cvdp", "chipbench"}


@pytest.mark.parametrize(
    ("benchmark", "references", "of"),
    [
        ("verilog_eval_v1_machine", 143, 143),
        ("verilog_eval_v1_human", 156, 156),
        ("verilog_eval_v2_code_complete", 153, 156),
        ("verilog_eval_v2_spec_to_rtl", 152, 156),
        ("rtllm_v1.1", 28, 29),
        ("rtllm_v2.0", 49, 50),
    ],
)
def test_a_ceiling_is_what_upstream_gives_to_its_own_references(
    benchmark: str, references: int, of: int
) -> None:
    published = read_published()
    assert published.ceiling(benchmark) == pytest.approx(references / of, abs=5e-5)
    assert str(references) in published.ceilings[benchmark].why


def test_every_public_benchmark_has_a_ceiling_with_its_reason() -> None:
    published = read_published()
    assert set(published.ceilings) == set(UPSTREAM)
    assert all(ceiling.why for ceiling in published.ceilings.values())


def test_no_score_is_doubled_over_a_wrong_reference() -> None:
    """Twice 14 of 29 designs is all 28 that can pass, and the published figure is rounded up."""
    coder = next(s for s in read_published().of("rtllm_v1.1") if s.model.startswith("RTL-Coder"))
    assert coder.value == 0.483
    assert (
        "above the ceiling of 96.5%" in coder.twice or "above the ceiling of 96.6%" in coder.twice
    )
    doubled = [s.model for s in read_published().of("rtllm_v1.1") if not s.twice]
    assert doubled == ["GPT-3.5"]


def test_a_ceiling_without_its_reason_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "scores.yaml"
    wrong.write_text("version: 1\nceilings: {x: {percent: 9, why: ''}}\nsources: {}\nscores: {}\n")
    with pytest.raises(UserError, match="why"):
        read_published(wrong)


def test_a_score_without_its_source_is_refused(tmp_path: Path) -> None:
    wrong = tmp_path / "scores.yaml"
    wrong.write_text(
        "version: 1\nceilings: {}\nsources: {}\n"
        "scores: {x: [{model: m, metric: pass@1, percent: 50, source: rumour}]}\n"
    )
    with pytest.raises(UserError, match="x, m: no source 'rumour'"):
        read_published(wrong)


def test_an_unreadable_evaluation_is_named_and_the_others_stay(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    score(workspace, "e1", "one", 100)
    score(workspace, "e2", "two", 120)
    (workspace.evaluation("e2") / "results.json").write_text("{}")
    assert leaderboard.main(["--workspace", str(workspace.root)]) == 1
    shown = capsys.readouterr().out
    assert "not readable: e2" in shown
    assert "dsm:1" in shown
    assert "e2</b> cannot be read" in (workspace.evaluations / "leaderboard.html").read_text()


def test_the_command_prints_and_writes_the_board(workspace: Workspace) -> None:
    score(workspace, "e1", "one", 100)
    done = subprocess.run(
        [sys.executable, "-m", "evaluation.leaderboard", "--workspace", str(workspace.root)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert re.search(r"1 +dsm:1 +50\.0% +\[4\d\.\d%, 5\d\.\d%\] +200 × 1 +e1", done.stdout)
    assert "data d1 · grader g1 · iverilog Icarus Verilog 12.0" in done.stdout
    written = (workspace.evaluations / "leaderboard.json").read_text()
    assert Board.model_validate_json(written) == build(workspace)


def test_an_empty_workspace_says_what_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert leaderboard.main(["--workspace", str(tmp_path)]) == 0
    assert "flows.score" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        leaderboard.main(["--workspace", str(tmp_path / "nowhere")])
    assert end.value.code == 2


def test_the_page_is_inert_and_needs_nothing_from_elsewhere(workspace: Workspace) -> None:
    hostile = "</style><script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    path = workspace.run("one") / "final"
    publish_evaluation(
        workspace, "e1", {hostile: path}, {QA: {hostile: of(20, 10)}}, data_hash=hostile,
        tool_versions={hostile: hostile},
    )  # fmt: skip
    page = render(build(workspace))
    tags = Tags(page)
    assert not {"script", "img"} & tags.names
    assert not tags.handlers
    assert {a for a in tags.links if not a.startswith("./e1/")} == set()
    assert "default-src 'none'" in page


class Tags(HTMLParser):
    """Names of a page's elements, its links, its event handlers."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: set[str] = set()
        self.handlers: set[str] = set()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        self.handlers |= {name for name, _ in attrs if name.startswith("on")}
        self.links |= {value or "" for name, value in attrs if name in ("href", "src")}

"""All evaluations of a workspace as one table a benchmark, only comparable scores together.

    python -m evaluation.leaderboard --workspace W

In: `evaluations/*`. Out: the table on standard output, and `evaluations/leaderboard.html` and
`.json`; `python -m flows.score` writes them after each run. Scores stand in one group when they
share problems, grader, tools, answering settings and rules (`audited`: known faulty problems left
out; `official`: upstream's own). A rank counts the models of the group whose whole interval lies
above, so models that their intervals do not tell apart share it. Published scores stand beside,
unranked.

Exit code 0: written; 1: an evaluation could not be read; 2: bad usage. Not covered: paired tests
between any two rows, which the report of their evaluation and `python -m flows.promote` have.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from evaluation.identity import Identity, identity_of
from evaluation.published import REPORT, Evaluation, read_evaluations
from evaluation.published_scores import PublishedScore, read_published
from evaluation.results import BenchmarkResult, Frozen, Score
from workspace import publish
from workspace.errors import DsmError
from workspace.locking import stage_lock
from workspace.paths import Workspace

Rules = Literal["audited", "official"]
_OFFICIAL = "official_"


class Row(Frozen):
    """A model's score. `others` are the further metrics of the same rules."""

    rank: int
    model: str
    model_hash: str
    score: Score
    others: dict[str, float]
    samples: int
    evaluation: str
    created: str
    sandbox: str
    report: str  # relative to the evaluations' folder


class Group(Frozen):
    """Scores that may be compared, the best first."""

    title: str
    metric: str
    rules: Rules
    measured: Identity
    excluded: int
    rows: tuple[Row, ...]


class Board(Frozen):
    """Groups by benchmark, the published scores, and what could not be read."""

    groups: tuple[Group, ...]
    published: tuple[PublishedScore, ...]
    unreadable: dict[str, str]

    @property
    def benchmarks(self) -> list[str]:
        """Measured ones first, then those that only others scored."""
        names = [group.measured.benchmark for group in self.groups]
        return list(dict.fromkeys([*names, *(score.benchmark for score in self.published)]))

    def groups_of(self, benchmark: str) -> list[Group]:
        """The groups of `benchmark`."""
        return [group for group in self.groups if group.measured.benchmark == benchmark]

    def published_of(self, benchmark: str) -> list[PublishedScore]:
        """The published scores on `benchmark`."""
        return [score for score in self.published if score.benchmark == benchmark]


class _Key(NamedTuple):
    measured: Identity
    rules: Rules


class _Entry(NamedTuple):
    evaluation: Evaluation
    result: BenchmarkResult
    model: str
    score: Score


def build(workspace: Workspace) -> Board:
    """The board of all published evaluations."""
    unreadable: dict[str, str] = {}
    evaluations = read_evaluations(workspace, unreadable)
    grouped: dict[_Key, list[_Entry]] = {}
    for key, entry in _entries(evaluations):
        grouped.setdefault(key, []).append(entry)
    published = read_published()
    groups = [_group(key, entries) for key, entries in grouped.items()]
    # Of several groups of a benchmark the one that was scored last comes first.
    groups.sort(key=lambda group: max(row.created for row in group.rows), reverse=True)
    groups.sort(key=lambda group: (group.measured.benchmark, group.rules))
    return Board(
        groups=tuple(groups),
        published=tuple(s for name in published.benchmarks for s in published.of(name)),
        unreadable=unreadable,
    )


def write(workspace: Workspace) -> Board:
    """Build the board and publish its page and its JSON."""
    from evaluation.leaderboard_page import render

    with stage_lock(workspace, "leaderboard", wait_s=60):
        board = build(workspace)
        publish.write_text(workspace.leaderboard.with_suffix(".html"), render(board))
        publish.write_json(
            workspace.leaderboard.with_suffix(".json"), board.model_dump(mode="json")
        )
    return board


def _entries(evaluations: Iterable[Evaluation]) -> Iterable[tuple[_Key, _Entry]]:
    for evaluation in evaluations:
        for result in evaluation.summary.benchmarks:
            measured = identity_of(evaluation, result)
            for model, scores in result.scores.items():
                for metric, rules in _headlines(result):
                    if metric in scores:
                        entry = _Entry(evaluation, result, model, scores[metric])
                        yield _Key(measured, rules), entry


def _headlines(result: BenchmarkResult) -> Sequence[tuple[str, Rules]]:
    return ((result.metric, "audited"), (f"{_OFFICIAL}{result.metric}", "official"))


def _group(key: _Key, entries: Sequence[_Entry]) -> Group:
    first = entries[0].result
    ordered = sorted(
        entries,
        key=lambda e: (-e.score.value, e.model, e.evaluation.manifest.created, e.evaluation.folder),
    )
    return Group(
        title=first.title or first.name,
        metric=first.metric,
        rules=key.rules,
        measured=key.measured,
        excluded=len(first.excluded) if key.rules == "audited" else 0,
        rows=tuple(_row(entry, ordered, key.rules) for entry in ordered),
    )


def _row(entry: _Entry, group: Sequence[_Entry], rules: Rules) -> Row:
    evaluation = entry.evaluation
    model = next(m for m in evaluation.summary.models if m.label == entry.model)
    return Row(
        rank=1 + sum(other.score.low > entry.score.high for other in group),
        model=entry.model,
        model_hash=model.hash,
        score=entry.score,
        others=_others(entry.result, entry.result.scores[entry.model], rules),
        samples=entry.result.samples_per_problem,
        evaluation=evaluation.summary.id,
        created=evaluation.manifest.created,
        sandbox=evaluation.summary.sandbox,
        report=f"./{evaluation.folder.name}/{REPORT}",
    )


def _others(result: BenchmarkResult, scores: Mapping[str, Score], rules: Rules) -> dict[str, float]:
    """pass@k of the same rules besides the headline."""
    prefix = _OFFICIAL if rules == "official" else ""
    return {
        metric.removeprefix(prefix): score.value
        for metric, score in scores.items()
        if metric.startswith(f"{prefix}pass@") and metric != f"{prefix}{result.metric}"
    }


def as_text(board: Board) -> str:
    """The board for a terminal."""
    lines: list[str] = []
    for name in board.benchmarks:
        groups = board.groups_of(name)
        if not groups:
            continue
        for group in groups:
            lines += ["", f"{group.title} · {group.metric}, {group.rules} rules", _measured(group)]
            lines += [_row_line(row) for row in group.rows]
        lines += [_published_line(score) for score in board.published_of(name)]
    if not lines:
        lines = ["", "no evaluation is published yet: run `python -m flows.score`"]
    lines += [f"\nnot readable: {name}: {why}" for name, why in board.unreadable.items()]
    return "\n".join(lines[1:])


def _measured(group: Group) -> str:
    tools = [f"{name} {version}" for name, version in group.measured.tool_versions]
    parts = [f"data {group.measured.data_hash}", f"grader {group.measured.grader_version}", *tools]
    parts += [f"{name} {value}" for name, value in group.measured.answering]
    return f"  {' · '.join(parts)}"


def _row_line(row: Row) -> str:
    score = row.score
    return (
        f"  {row.rank:>3}  {row.model:<28} {score.value:6.1%}  [{score.low:.1%}, {score.high:.1%}]"
        f"  {score.problems} × {row.samples}  {row.evaluation}"
    )


def _published_line(score: PublishedScore) -> str:
    return (
        f"    –  {score.model:<28} {score.value:6.1%}  published, {score.metric}, official rules: "
        f"{score.source}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m evaluation.leaderboard", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--workspace", required=True, type=Path, metavar="DIR")
    options = parser.parse_args(arguments)
    workspace = Workspace(options.workspace)
    if not workspace.root.is_dir():
        parser.error(f"--workspace: {workspace.root} is no folder")
    try:
        board = write(workspace)
    except DsmError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(as_text(board))
    print(f"\n{workspace.leaderboard.with_suffix('.html')}")
    return 1 if board.unreadable else 0


if __name__ == "__main__":
    sys.exit(main())

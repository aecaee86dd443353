"""Grade Verilog answers that were made elsewhere, and print pass@k with intervals.

    python -m evaluation.grade --benchmark verilog_eval_v2_code_complete=DIR \\
        --answers answers.jsonl --out verdicts.jsonl

DIR is the benchmark as upstream publishes it. answers.jsonl: `task_id`, `sample`, `answer` a line;
verdicts.jsonl: `task_id`, `sample`, `verdict`, `detail`, where a pass is exactly `pass`. Exit code
0: all answers have a verdict; 1: some have none, they are listed, run again; 2: bad usage.

`--workspace W --model LABEL` also publishes the result in a workspace, as `python -m flows.score`
does, and writes its leaderboard. A killed run continues where it was. Not covered: making the
answers.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from evaluation.benchmarks.verilog import summary as summaries
from evaluation.benchmarks.verilog.answers import Answer, Verdicts, read_answers
from evaluation.benchmarks.verilog.cache import Cache, default_folder
from evaluation.benchmarks.verilog.errata import PATH, Errata, read_errata
from evaluation.benchmarks.verilog.grader import VERSION
from evaluation.benchmarks.verilog.official import has_rules
from evaluation.benchmarks.verilog.problems import READERS, Problem, read_benchmark
from evaluation.benchmarks.verilog.public_set import BenchSet, refuse_too_many_unusable
from evaluation.benchmarks.verilog.run import Graded, grade_answers
from evaluation.benchmarks.verilog.self_test import self_test
from evaluation.benchmarks.verilog.summary import Summary
from evaluation.verifiers import sandbox
from evaluation.verifiers.verilog import require_simulator, tool_version
from workspace.errors import DsmError, UserError
from workspace.paths import Workspace
from workspace.progress import bar, log_lines


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m evaluation.grade", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument(
        "--benchmark", required=True, metavar="NAME=DIR",
        help=f"which one and where its files are; NAME: {', '.join(READERS)}; or your own in "
        "one of these layouts: NAME_layout",
    )  # fmt: skip
    parser.add_argument("--answers", required=True, type=Path, metavar="FILE.jsonl")
    parser.add_argument("--out", required=True, type=Path, metavar="FILE.jsonl")
    parser.add_argument(
        "--samples", type=int, metavar="N",
        help="samples that each problem should have; by default the most that one has",
    )  # fmt: skip
    parser.add_argument(
        "--only-answered", action="store_true",
        help="score only the problems that the answers name, not the whole benchmark",
    )  # fmt: skip
    parser.add_argument(
        "--no-errata", action="store_true", help="verdicts by upstream's rules, mistakes included"
    )
    parser.add_argument("--errata", type=Path, default=PATH, help="another errata file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the summary as JSON")
    parser.add_argument(
        "--workers", type=int, default=len(os.sched_getaffinity(0)), help="default: all cores"
    )
    parser.add_argument(
        "--cache", type=Path, default=default_folder(), help="folder of verdicts by content"
    )
    parser.add_argument(
        "--workspace", type=Path, metavar="DIR", help="put the result on this one's leaderboard"
    )
    parser.add_argument("--model", metavar="LABEL", help="who made the answers, with --workspace")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit code."""
    options = _parser().parse_args(arguments)
    try:
        summary = grade(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except DsmError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f"error: {error.filename}: {error.strerror}. What was judged is kept: mend that and "
            "run again",
            file=sys.stderr,
        )
        return 1
    print(summaries.as_text(summary))
    return 0 if summary.complete else 1


def grade(options: argparse.Namespace) -> Summary:
    """Do what the command line says."""
    name, separator, place = options.benchmark.partition("=")
    if not separator or not place:
        raise UserError(f"--benchmark {options.benchmark!r}: give NAME=DIR")
    _refuse_flags(options, name, Path(place))
    started = time.monotonic()
    problems = read_benchmark(name, Path(place))
    board = _benchmark_of_board(options, name, Path(place))
    errata = read_errata(options.errata)
    answers = read_answers(options.answers, problems.keys())
    graded = _judge(options, name, problems, answers, errata)
    given: dict[str, list[int]] = {}
    for answer in answers:
        given.setdefault(answer.task_id, []).append(answer.sample)
    scored = [task_id for task_id in problems if task_id in given or not options.only_answered]
    summary = _summarise(options, name, {t: problems[t] for t in scored}, given, graded, errata)
    if options.json:
        from workspace import publish

        publish.write_text(options.json.resolve(), summary.model_dump_json(indent=1) + "\n")
    if board is not None and summary.complete:
        from evaluation.graded_elsewhere import only, publish_graded

        publish_graded(
            Workspace(options.workspace),
            options.model,
            only(board, scored),
            answers,
            graded.lines,
            samples=summary.samples_per_problem,
            source=options.answers.resolve(),
            seconds=time.monotonic() - started,
        )
    return summary


def _judge(
    options: argparse.Namespace,
    name: str,
    problems: dict[str, Problem],
    answers: Sequence[Answer],
    errata: Errata,
) -> Graded:
    """All verdicts, in the file `--out`."""
    with closing(Verdicts(options.out, name)) as verdicts:
        require_simulator()
        self_test()
        known = errata.of(name, tool_version())
        graded = grade_answers(
            problems,
            answers,
            verdicts,
            Cache(options.cache),
            errata=known,
            use_errata=not options.no_errata,
            workers=options.workers,
            progress=bar if sys.stderr.isatty() else log_lines,
        )
        refuse_too_many_unusable(name, graded.unusable, {a.task_id for a in answers}, known)
        verdicts.finish(graded.lines)
    return graded


def _refuse_flags(options: argparse.Namespace, name: str, source: Path) -> None:
    """Raises `UserError` for settings that cannot be meant.

    What is written takes the place of what was there: it is no file that is read, and no device.
    """
    for flag, value in (("--workers", options.workers), ("--samples", options.samples)):
        if value is not None and value < 1:
            raise UserError(f"{flag} must be at least 1")
    if options.no_errata and not has_rules(name):
        raise UserError(f"--no-errata: {name} has no upstream whose rules could be followed")
    read = {path.resolve() for path in (source, options.answers, options.errata)}
    for flag, path in (("--out", options.out), ("--json", options.json)):
        if path is None:
            continue
        if path.resolve() in read:
            raise UserError(f"{flag} {path} is read by this very command: give another file")
        if path.exists() and not path.is_file():
            raise UserError(f"{flag} {path} is no file: give another one")
        read.add(path.resolve())


def _benchmark_of_board(options: argparse.Namespace, name: str, source: Path) -> BenchSet | None:
    """The problems as `flows.score` has them; None when no leaderboard is wanted."""
    if options.workspace is None and options.model is None:
        return None
    if options.workspace is None or options.model is None:
        raise UserError("--workspace and --model go together")
    if options.no_errata or options.errata != PATH:
        raise UserError("--workspace: a leaderboard has this project's errata; leave the flag out")
    from evaluation.graded_elsewhere import ranked_benchmark

    return ranked_benchmark(name, source, options.cache, options.model)


def _summarise(
    options: argparse.Namespace,
    name: str,
    problems: dict[str, Problem],
    given: dict[str, list[int]],
    graded: Graded,
    errata: Errata,
) -> Summary:
    most = max(len(samples) for samples in given.values())
    samples = options.samples or most
    if samples < most:
        raise UserError(f"--samples {samples}, but a problem has {most} answers")
    known = errata.of(name, tool_version()) if not options.no_errata else {}
    unusable = {} if options.no_errata else graded.unusable
    left_out = summaries.excluded_by(known, unusable)
    excluded = {n: why for n, why in left_out.items() if n in problems}
    audited = [task_id for task_id in problems if task_id not in excluded]
    complete = not graded.infra

    def score(names: Sequence[str], *, official: bool) -> summaries.Score | None:
        if not complete:
            return None
        counts = summaries.count_passes(graded.lines, list(names), official=official)
        return summaries.score_of(counts, samples, as_printed_by=name if official else "")

    return Summary(
        benchmark=name,
        simulator=tool_version(),
        grader_version=VERSION,
        sandbox=sandbox.level(),
        errata_version=None if options.no_errata else errata.version,
        problems=len(problems),
        samples_per_problem=samples,
        audited=None if options.no_errata else score(audited, official=False),
        official=score(list(problems), official=True) if has_rules(name) else None,
        outcomes=summaries.outcomes_of(graded.lines),
        missing=summaries.missing_samples(given, list(problems), samples),
        without_verdict=[list(item) for item in graded.infra],
        unusable=graded.unusable,
        excluded=excluded,
        notes={
            n: e.what for n, found in sorted(known.items()) for e in found
            if e.effect != "exclude" and n in problems
        },
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())

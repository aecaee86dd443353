"""Grade all answers of a file: equal programs once, longest simulation first, on all cores.

    outcome = grade_answers(problems, answers, verdicts, cache, errata=..., workers=2)

Verdicts do not depend on the order of the answers or on the number of workers. What the machine
failed to judge is listed in `Graded.infra` and has no verdict line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import NamedTuple

from evaluation.benchmarks.verilog.answers import Answer, VerdictLine, Verdicts
from evaluation.benchmarks.verilog.cache import Cache
from evaluation.benchmarks.verilog.errata import Erratum
from evaluation.benchmarks.verilog.grader import Judgement, ProblemGrader
from evaluation.benchmarks.verilog.official import has_rules
from evaluation.benchmarks.verilog.problems import Problem
from evaluation.verifiers import sandbox
from evaluation.verifiers.verdict import Verdict
from workspace.progress import Progress, quiet


@dataclass(frozen=True)
class Graded:
    """All verdicts in the order of problem and sample, and what has none."""

    lines: list[VerdictLine]
    infra: list[tuple[str, int, str]]  # task id, sample, what happened
    unusable: dict[str, str]  # problems whose reference cannot be run here -> why
    simulated: int  # distinct answers that were run or found in the cache


class _Job(NamedTuple):
    grader: ProblemGrader
    code: str
    key: str
    answers: list[Answer]


def grade_answers(
    problems: Mapping[str, Problem],
    answers: Sequence[Answer],
    verdicts: Verdicts,
    cache: Cache,
    *,
    errata: Mapping[str, Sequence[Erratum]],
    use_errata: bool,
    workers: int,
    progress: Progress = quiet,
) -> Graded:
    """Judge every answer; verdict lines are appended to `verdicts` as they come."""
    forgiven = {
        task_id: max((e.samples for e in found if e.effect == "forgive_first"), default=0)
        for task_id, found in errata.items()
    }
    graders = {
        task_id: ProblemGrader(
            problems[task_id], cache, forgiven=forgiven.get(task_id, 0) if use_errata else 0
        )
        for task_id in sorted({answer.task_id for answer in answers})
    }
    done: dict[tuple[str, int], VerdictLine] = {}
    infra: list[tuple[str, int, str]] = []
    jobs = _jobs(graders, answers, verdicts, done, use_errata=use_errata)

    def take(job: _Job, judgement: Judgement) -> None:
        if judgement.without_verdict:
            infra.extend((a.task_id, a.sample, judgement.outcome) for a in job.answers)
            return
        problem = job.grader.problem
        lines = [_line(problem, answer, judgement, job.key, use_errata) for answer in job.answers]
        verdicts.add(lines)
        done.update({(line.task_id, line.sample): line for line in lines})

    with ThreadPoolExecutor(workers) as pool:
        needed = {job.grader.problem.task_id: job.grader for job in jobs}
        record_references(pool, list(needed.values()), progress)
        jobs.sort(key=lambda job: (-job.grader.golden.cpu_s, job.key))
        with progress("grading", sum(len(job.answers) for job in jobs), "answers") as advance:
            _judge_all(pool, jobs, take, advance)
    return Graded(
        [done[key] for key in sorted(done)],
        sorted(infra),
        {
            task_id: f"{grader.golden.unusable}: {grader.golden.detail}"
            for task_id, grader in needed.items()
            if grader.golden.unusable
        },
        len(jobs),
    )


def _jobs(
    graders: Mapping[str, ProblemGrader],
    answers: Sequence[Answer],
    verdicts: Verdicts,
    done: dict[tuple[str, int], VerdictLine],
    *,
    use_errata: bool,
) -> list[_Job]:
    """Distinct codes to simulate. Answers without code, and those known from before, are done."""
    jobs: dict[str, _Job] = {}
    without_code: list[VerdictLine] = []
    for answer in answers:
        grader = graders[answer.task_id]
        code = grader.extract(answer.text)
        key = grader.key(code if isinstance(code, str) else f"\0{code.outcome} {code.detail}")
        key += "" if use_errata else ":official"
        known = verdicts.known.get((answer.task_id, answer.sample))
        if known is not None and known.key == key:
            done[answer.task_id, answer.sample] = known
        elif isinstance(code, Verdict):
            judgement = Judgement(code.outcome, code.detail, code.outcome)
            without_code.append(_line(grader.problem, answer, judgement, key, use_errata))
        else:
            job = jobs.setdefault(key, _Job(grader, code, key, []))
            job.answers.append(answer)
            # Equal but for comments: which one is run must not depend on the order of the answers.
            jobs[key] = job._replace(code=min(job.code, code))
    if without_code:
        verdicts.add(without_code)
        done.update({(line.task_id, line.sample): line for line in without_code})
    return list(jobs.values())


def _line(
    problem: Problem, answer: Answer, judgement: Judgement, key: str, use_errata: bool
) -> VerdictLine:
    verdict = judgement.outcome
    official = (judgement.official or "pass") if has_rules(problem.benchmark) else ""
    if not use_errata and official == "pass":
        verdict = "pass"
    elif not use_errata and verdict == "pass":
        verdict = f"official:{official}"
    task_id, sample, _ = answer
    return VerdictLine(
        task_id,
        sample,
        verdict,
        judgement.detail,
        official,
        key,
        judgement.output,
        sandbox.level(),
        problem.benchmark,
    )


def record_references(
    pool: ThreadPoolExecutor, graders: list[ProblemGrader], progress: Progress = quiet
) -> None:
    """Record each problem's reference, from the cache or by simulation."""
    # Before anything is known of them, long texts stand for long simulations.
    graders.sort(key=lambda grader: -len(grader.problem.bench) - len(grader.problem.reference))
    with progress("recording references", len(graders), "problems") as advance:
        waiting = [pool.submit(grader.prepare) for grader in graders]
        for future in as_completed(waiting):
            future.result()
            advance(1)


def _judge_all(
    pool: ThreadPoolExecutor,
    jobs: Sequence[_Job],
    take: Callable[[_Job, Judgement], None],
    advance: Callable[[int], None],
) -> None:
    waiting: dict[Future[Judgement], _Job] = {
        pool.submit(job.grader.judge, job.code): job for job in jobs
    }
    try:
        for future in as_completed(waiting):
            job = waiting.pop(future)
            take(job, future.result())
            advance(len(job.answers))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise

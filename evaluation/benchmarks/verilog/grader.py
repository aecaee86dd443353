"""One answer to one problem -> one judgement, with the benchmark's own stimulus.

    grader = ProblemGrader(problem, Cache(folder))
    grader.prepare()                      # records the reference, or finds why that cannot be
    judgement = grader.judge(answer)      # pure: answer, problem, simulator, sandbox level

The reference is simulated once, alone, as the candidate in its own test bench; its outputs are the
golden samples. An answer goes through extraction (`verifiers.verilog_answer`) and gate, then is
simulated in the recording bench inside the sandbox; the samples are compared here. In that
simulation there is nothing to steal, and what it could reach has random names. A bench that judges
by itself holds its verdict, so there an answer must compile alone first. Answers that differ in
comments and layout alone are one program: simulated once, or not at all when it is the reference.
CPU limit: 10 times what the reference needed, at least 2 s.

A fault of the machine is tried again once and is then no judgement: outcome `infra:*`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Final

from evaluation.benchmarks.verilog import golden as goldens
from evaluation.benchmarks.verilog import official
from evaluation.benchmarks.verilog.bench_run import Allowance, run_in_bench
from evaluation.benchmarks.verilog.cache import Cache, key_of
from evaluation.benchmarks.verilog.golden import Golden
from evaluation.benchmarks.verilog.problems import Problem
from evaluation.benchmarks.verilog.recording import MARK, Recording, read_recording
from evaluation.benchmarks.verilog.self_judging import read_verdict
from evaluation.verifiers import sandbox
from evaluation.verifiers.verdict import OUTPUT_CHARS, Verdict
from evaluation.verifiers.verilog import tool_version
from evaluation.verifiers.verilog_answer import extract_code
from evaluation.verifiers.verilog_cuts import has_concurrent_assertion
from evaluation.verifiers.verilog_gate import program_of
from evaluation.verifiers.verilog_golden import Sample, compare_samples
from evaluation.verifiers.verilog_simulation import COMPILED_BYTES
from evaluation.verifiers.verilog_tokens import tokens_of

VERSION: Final = "7"  # part of a score's identity: raise it when any judgement may change
MIN_CPU_S: Final = 2


@dataclass(frozen=True)
class Judgement:
    """`outcome` as in `Verdict`, or `unusable:*` when the problem cannot be run here.

    `official` is empty when upstream's rules call the answer right, else why they do not.
    `output` is the end of what compiler and simulator printed, with `MARK` for the run's mark.
    """

    outcome: str
    detail: str
    official: str
    output: str = ""

    @property
    def without_verdict(self) -> bool:
        """Whether the machine failed; nothing may be concluded."""
        return self.outcome.startswith("infra:")


class ProblemGrader:
    """Grades answers to one problem. `forgiven` first samples may differ in the audited verdict."""

    def __init__(self, problem: Problem, cache: Cache, *, forgiven: int = 0) -> None:
        self.problem = problem
        self.cache = cache
        self.forgiven = forgiven
        self.identity = key_of(VERSION, tool_version(), sandbox.level(), problem.digest())
        self.golden = Golden(unusable="not_prepared")

    def prepare(self) -> Golden:
        """Record the reference. A fault of the machine (`unusable` is infra:*) is not kept."""
        key = key_of(self.identity, "recording", goldens.FORM)
        kept = self.cache.get(key)
        self.golden = goldens.unpack(kept) if kept is not None else goldens.record(self.problem)
        if kept is None and not self.golden.unusable.startswith("infra:"):
            self.cache.put(key, asdict(self.golden))
        return self.golden

    def extract(self, answer: str) -> str | Verdict:
        """The code of an answer: a whole module, or a body that the interface is put before."""
        code = extract_code(answer, self.problem.top, before=self.problem.interface)
        if isinstance(code, Verdict) or not self.problem.interface:
            return code
        spliced = code.startswith(self.problem.interface)
        return f"{code}\nendmodule\n" if spliced and _is_open(code) else code

    def key(self, code: str) -> str:
        """Of the judgement of `code`, whatever its comments and layout."""
        return key_of(self.identity, self.forgiven, program_of(code))

    def judge(self, code: str) -> Judgement:
        """The judgement of extracted code, from the cache or by simulation."""
        kept = self.cache.get(self.key(code))
        if kept is not None:
            return Judgement(**kept)
        judgement = self._judge(code)
        if judgement.without_verdict:
            judgement = self._judge(code)
        if not judgement.without_verdict:
            self.cache.put(self.key(code), asdict(judgement))
        return judgement

    def _judge(self, code: str) -> Judgement:
        golden = self.golden
        if golden.unusable.startswith("infra:"):
            return Judgement(golden.unusable, golden.detail, golden.unusable)
        if golden.unusable:
            outcome = f"unusable:{golden.unusable}"
            return Judgement(outcome, golden.detail, outcome)
        assert golden.outline is not None, "usable"
        allowance = Allowance(
            max(MIN_CPU_S, math.ceil(10 * golden.cpu_s)),
            2 * golden.output_bytes + COMPILED_BYTES,
            golden.count,
            golden.output_bytes,
        )
        found = run_in_bench(self.problem, golden.outline, code, allowance, known=golden.run)
        if isinstance(found, Verdict):
            return Judgement(found.outcome, found.detail, self._not_run(found, code), found.output)
        if self.problem.self_judging:
            audited, said = read_verdict(found.stdout, MARK), found.stdout
        else:
            read = read_recording(found.stdout, found.written, MARK)
            exact = audited = self._compare(read, 0)
            if self.forgiven and not exact.passed:
                audited = self._compare(read, self.forgiven)
            said = self._as_upstream_prints(read, exact)
        asserts = has_concurrent_assertion(tokens_of(code))
        log = official.Log(found.warnings, said, code, asserts)
        return Judgement(
            audited.outcome,
            audited.detail,
            official.refusal(self.problem.benchmark, log),
            f"{found.warnings}{found.stdout}{found.written[-OUTPUT_CHARS:]}"[-OUTPUT_CHARS:],
        )

    def _not_run(self, verdict: Verdict, code: str) -> str:
        """Why upstream calls an answer wrong that ended before its simulation did."""
        compiled = verdict.outcome not in ("compile", "interface")
        if compiled or not official.has_icarus(self.problem.benchmark):
            return verdict.outcome
        return official.refusal(self.problem.benchmark, official.Log(verdict.output, "", code))

    def _as_upstream_prints(self, read: Recording | Verdict, exact: Verdict) -> str:
        """The lines of upstream's bench on which its verdict rests."""
        guard = "TIMEOUT\n" if self.golden.timeout else ""
        if isinstance(read, Verdict) or exact.outcome not in ("pass", "mismatch"):
            return guard
        wrong = 0 if exact.passed else self._mismatches(read)
        return f"{guard}Mismatches: {wrong} in {read.samples} samples\n"

    def _mismatches(self, read: Recording) -> int:
        pairs = zip(self.golden.samples, read.lines, strict=True)
        return sum(not wanted.accepts(Sample.parse(line)) for wanted, line in pairs)

    def _compare(self, read: Recording | Verdict, forgiven: int) -> Verdict:
        """Verdict on what the recording bench kept of a candidate."""
        golden = self.golden
        assert golden.outline is not None, "usable"
        if isinstance(read, Verdict):
            return read
        if golden.is_same(read):
            return Verdict(1.0, "pass", "all samples are the reference's")
        if read.samples != golden.count:
            return Verdict(0.0, "runtime", f"{read.samples} samples of {golden.count}")
        wanted = [*[Sample(0, 0)] * forgiven, *golden.samples[forgiven:]]
        return compare_samples(wanted, read.lines, golden.outline.outputs)


def _is_open(code: str) -> bool:
    """Whether the last module has no end."""
    words = [token.text for token in tokens_of(code) if token.kind == "word"]
    return words.count("module") > words.count("endmodule")

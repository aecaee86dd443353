"""One answer to one problem -> one judgement, with the benchmark's own stimulus.

    grader = ProblemGrader(problem, Cache(folder))
    grader.prepare()                      # records the reference, or finds why that cannot be
    judgement = grader.judge(answer)      # pure: answer, problem, simulator, sandbox level

The reference is simulated once, alone, as the candidate in its own test bench; its outputs are the
golden samples. An answer goes through extraction (`verifiers.verilog_answer`) and gate, then is
simulated in the recording bench inside the sandbox; the samples are compared here. In that
simulation there is nothing to steal, and what it could reach has random names. A bench that judges
by itself holds its verdict, so there an answer must compile alone first.
CPU limit: 10 times what the reference needed, at least 2 s.

A fault of the machine is tried again once and is then no judgement: outcome `infra:*`.
"""

from __future__ import annotations

import base64
import functools
import math
import re
import secrets
import zlib
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from evaluation.benchmarks.verilog import official
from evaluation.benchmarks.verilog.cache import Cache, key_of
from evaluation.benchmarks.verilog.problems import Problem
from evaluation.benchmarks.verilog.recording import (
    MARK,
    NoBench,
    Outline,
    Recording,
    read_recording,
    recording_bench,
)
from evaluation.benchmarks.verilog.self_judging import judging_bench, read_verdict
from evaluation.verifiers import sandbox, verilog_simulation
from evaluation.verifiers.verdict import OUTPUT_CHARS, Verdict, no_verdict
from evaluation.verifiers.verilog import tool_version
from evaluation.verifiers.verilog_answer import extract_code
from evaluation.verifiers.verilog_cuts import has_concurrent_assertion
from evaluation.verifiers.verilog_golden import Sample, compare_samples
from evaluation.verifiers.verilog_simulation import Driven
from evaluation.verifiers.verilog_tokens import tokens_of

VERSION: Final = "5"  # part of a score's identity: raise it when any judgement may change
MIN_CPU_S: Final = 2
GOLDEN_CPU_S: Final = 120
GOLDEN_OUTPUT_BYTES: Final = 64 << 20
COMPILED_BYTES: Final = 32 << 20  # the limit holds for every file, the compiled program too


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


@dataclass(frozen=True)
class Golden:
    """The recorded reference. `unusable` says why there is no recording, with a reason code."""

    stdout: str = ""  # with `MARK` for the mark of its run; empty for a bench that judges itself
    timeout: bool = False
    cpu_s: float = 0.0
    stdout_bytes: int = 0
    unusable: str = ""
    detail: str = ""

    @functools.cached_property
    def samples(self) -> list[Sample]:
        """The recorded samples; read only for a candidate whose output is not the same text."""
        read = read_recording(self.stdout, MARK)
        assert isinstance(read, Recording), "read before it was kept"
        return [Sample.parse(sample) for sample in read.samples]


class ProblemGrader:
    """Grades answers to one problem. `forgiven` first samples may differ in the audited verdict."""

    def __init__(self, problem: Problem, cache: Cache, *, forgiven: int = 0) -> None:
        self.problem = problem
        self.cache = cache
        self.forgiven = forgiven
        self.identity = key_of(VERSION, tool_version(), sandbox.level(), problem.digest())
        self.outline: Outline | None = None
        self.golden = Golden(unusable="not_prepared")

    def prepare(self) -> Golden:
        """Record the reference. A fault of the machine (`unusable` is infra:*) is not kept."""
        kept = self.cache.get(self.identity)
        self.golden = _unpack(kept) if kept is not None else self._record()
        if kept is None and not self.golden.unusable.startswith("infra:"):
            self.cache.put(self.identity, _pack(self.golden))
        if self.outline is None and not self.golden.unusable:
            self.outline = self._make_outline()
        return self.golden

    def _make_outline(self) -> Outline:
        make = judging_bench if self.problem.self_judging else recording_bench
        return make(self.problem)

    def _record(self) -> Golden:
        try:
            self.outline = self._make_outline()
        except NoBench as reason:
            return Golden(unusable="bench", detail=str(reason))
        name = re.compile(rf"\b{re.escape(self.problem.reference_top)}\b")
        reference = name.sub(self.problem.top, self.problem.reference)
        golden = self._record_once(reference, "0")
        if self.outline.reads_reference and not golden.unusable:
            other = self._record_once(reference, "1")
            if not other.unusable and other.stdout != golden.stdout:
                return Golden(unusable="bench", detail="the stimulus depends on the reference")
        return golden

    def _record_once(self, reference: str, fill: str) -> Golden:
        run = self._simulate(reference, GOLDEN_CPU_S, GOLDEN_OUTPUT_BYTES, fill, trusted=True)
        if isinstance(run, Verdict):
            reason = run.outcome if run.score is None else f"reference_{run.outcome}"
            return Golden(unusable=reason, detail=run.detail)
        if self.problem.self_judging:
            said = read_verdict(run.stdout, MARK)
            if said.passed:
                return Golden(cpu_s=run.cpu_s, stdout_bytes=len(run.stdout))
            return Golden(unusable=f"reference_{said.outcome}", detail=said.detail)
        read = read_recording(run.stdout, MARK)
        if isinstance(read, Verdict) or not read.samples:
            return Golden(unusable="reference_runtime", detail="no samples")
        return Golden(run.stdout, read.timeout, run.cpu_s, len(run.stdout))

    def extract(self, answer: str) -> str | Verdict:
        """The code of an answer: a whole module, or a body that the interface is put before."""
        code = extract_code(answer, self.problem.top, before=self.problem.interface)
        if isinstance(code, Verdict) or not self.problem.interface:
            return code
        spliced = code.startswith(self.problem.interface)
        return f"{code}\nendmodule\n" if spliced and _is_open(code) else code

    def key(self, code: str) -> str:
        """Of the judgement of `code`."""
        return key_of(self.identity, self.forgiven, code)

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
        cpu_s = max(MIN_CPU_S, math.ceil(10 * golden.cpu_s))
        found = self._simulate(
            code, cpu_s, 2 * golden.stdout_bytes + COMPILED_BYTES, "0", trusted=False
        )
        if isinstance(found, Verdict):
            return Judgement(found.outcome, found.detail, found.outcome, found.output)
        warned = official.refusal(
            self.problem.benchmark,
            found.warnings,
            timeout=golden.timeout,
            asserts=has_concurrent_assertion(tokens_of(code)),
        )
        if self.problem.self_judging:
            exact = audited = read_verdict(found.stdout, MARK)
        else:
            exact = audited = self._compare(found.stdout, 0)
            if self.forgiven and not exact.passed:
                audited = self._compare(found.stdout, self.forgiven)
        return Judgement(
            audited.outcome,
            audited.detail,
            warned if exact.passed else exact.outcome,
            f"{found.warnings}{found.stdout}"[-OUTPUT_CHARS:],
        )

    def _compare(self, stdout: str, forgiven: int) -> Verdict:
        """Verdict on what the recording bench printed of a candidate."""
        assert self.outline is not None, "prepared"
        if stdout == self.golden.stdout:
            return Verdict(1.0, "pass", "all samples are the reference's")
        read = read_recording(stdout, MARK)
        if isinstance(read, Verdict):
            return read
        wanted = [*[Sample(0, 0)] * forgiven, *self.golden.samples[forgiven:]]
        return compare_samples(wanted, read.samples, self.outline.outputs)

    def _simulate(
        self, code: str, cpu_s: int, output_bytes: int, fill: str, *, trusted: bool
    ) -> Driven | Verdict:
        """Run `code` in the bench under a fresh mark, which stands as `MARK` in what comes back.

        A verdict when there was no whole run.
        """
        try:
            return self._simulate_in_a_folder(code, cpu_s, output_bytes, fill, trusted=trusted)
        except OSError as error:
            return no_verdict(error)

    def _simulate_in_a_folder(
        self, code: str, cpu_s: int, output_bytes: int, fill: str, *, trusted: bool
    ) -> Driven | Verdict:
        assert self.outline is not None, "prepared"
        mark = f"m{secrets.token_hex(12)}"
        with verilog_simulation.bench(cpu_s) as bench:
            refused = None
            if trusted:
                bench.trust(code, self.problem.top)
            else:
                refused = bench.gate(code, self.problem.top)
            if refused is not None:
                return refused
            for name, content in self.problem.side_files:
                (bench.folder / name).write_bytes(content)
            driven = bench.drive(
                self.outline.with_mark(mark, fill),
                self.outline.top_with_mark(mark),
                alone=self.problem.self_judging and not trusted,
                output_bytes=output_bytes,
            )
            disk_is_full = bench.disk_is_full()
        short = isinstance(driven, Driven) and len(driven.stdout) < self.golden.stdout_bytes
        if disk_is_full and (short or isinstance(driven, Verdict)):
            return verilog_simulation.DISK_FULL
        if isinstance(driven, Verdict):
            return replace(
                driven,
                detail=driven.detail.replace(mark, MARK),
                output=driven.output.replace(mark, MARK),
            )
        if MARK in driven.stdout:
            return Verdict(0.0, "runtime", "the placeholder of the mark in the output")
        return driven._replace(stdout=driven.stdout.replace(mark, MARK))


def _is_open(code: str) -> bool:
    """Whether the last module has no end."""
    words = [token.text for token in tokens_of(code) if token.kind == "word"]
    return words.count("module") > words.count("endmodule")


def _pack(golden: Golden) -> dict[str, Any]:
    packed = zlib.compress(golden.stdout.encode(), 6)
    return {**asdict(golden), "stdout": base64.b64encode(packed).decode()}


def _unpack(kept: dict[str, Any]) -> Golden:
    stdout = zlib.decompress(base64.b64decode(kept["stdout"])).decode()
    return Golden(**{**kept, "stdout": stdout})

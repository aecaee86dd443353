"""One answer to one problem -> one judgement, with the benchmark's own stimulus.

    grader = ProblemGrader(problem, Cache(folder))
    grader.prepare()                      # records the reference, or finds why that cannot be
    judgement = grader.judge(answer)      # pure: answer, problem, simulator, sandbox level

The reference is simulated once, alone, as the candidate in its own test bench; its outputs are the
golden samples. An answer goes through extraction and gate (`verifiers.verilog_code`), then is
simulated in the recording bench inside the sandbox; the samples are compared here. In that
simulation there is nothing to steal, and what it could reach has random names. A bench that judges
by itself holds its verdict, so there an answer must compile alone first.
CPU limit: 10 times what the reference needed, at least 2 s.

A fault of the machine is tried again once and is then no judgement: outcome `infra:*`.
"""

from __future__ import annotations

import base64
import math
import re
import secrets
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from evaluation.benchmarks.verilog import official
from evaluation.benchmarks.verilog.cache import Cache, key_of
from evaluation.benchmarks.verilog.problems import Problem
from evaluation.benchmarks.verilog.recording import (
    NoBench,
    Outline,
    Recording,
    read_recording,
    recording_bench,
)
from evaluation.benchmarks.verilog.self_judging import judging_bench, read_verdict
from evaluation.verifiers import sandbox, verilog_simulation
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog import tool_version
from evaluation.verifiers.verilog_code import extract_code, tokens_of
from evaluation.verifiers.verilog_golden import Sample, compare_samples
from evaluation.verifiers.verilog_simulation import Driven

VERSION: Final = "1"  # part of a score's identity: raise it when any judgement may change
MIN_CPU_S: Final = 2
GOLDEN_CPU_S: Final = 120
GOLDEN_OUTPUT_BYTES: Final = 64 << 20
COMPILED_BYTES: Final = 32 << 20  # the limit holds for every file, the compiled program too
_SPARE_DISK_BYTES: Final = 16 << 20
# A failure on a full disk says nothing of the answer.
_DISK_FULL: Final = Verdict(None, "infra:disk", "the temporary folder is full")


@dataclass(frozen=True)
class Judgement:
    """`outcome` as in `Verdict`, or `unusable:*` when the problem cannot be run here.

    `official` is empty when upstream's rules call the answer right, else why they do not.
    """

    outcome: str
    detail: str
    official: str

    @property
    def without_verdict(self) -> bool:
        """Whether the machine failed; nothing may be concluded."""
        return self.outcome.startswith("infra:")


@dataclass(frozen=True)
class Golden:
    """The recorded reference. `unusable` says why there is no recording, with a reason code."""

    samples: tuple[str, ...] = ()
    timeout: bool = False
    cpu_s: float = 0.0
    stdout_bytes: int = 0
    unusable: str = ""
    detail: str = ""


class ProblemGrader:
    """Grades answers to one problem. `forgiven` first samples may differ in the audited verdict."""

    def __init__(self, problem: Problem, cache: Cache, *, forgiven: int = 0) -> None:
        self.problem = problem
        self.cache = cache
        self.forgiven = forgiven
        self.identity = key_of(VERSION, tool_version(), sandbox.level(), problem.digest())
        self.outline: Outline | None = None
        self.golden = Golden(unusable="not_prepared")
        self.wanted: list[Sample] = []

    def prepare(self) -> Golden:
        """Record the reference. A fault of the machine (`unusable` is infra:*) is not kept."""
        kept = self.cache.get(self.identity)
        self.golden = _unpack(kept) if kept is not None else self._record()
        if kept is None and not self.golden.unusable.startswith("infra:"):
            self.cache.put(self.identity, _pack(self.golden))
        if self.outline is None and not self.golden.unusable:
            self.outline = self._make_outline()
        self.wanted = [Sample.parse(sample) for sample in self.golden.samples]
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
            if not other.unusable and other.samples != golden.samples:
                return Golden(unusable="bench", detail="the stimulus depends on the reference")
        return golden

    def _record_once(self, reference: str, fill: str) -> Golden:
        found = self._simulate(reference, GOLDEN_CPU_S, GOLDEN_OUTPUT_BYTES, fill, trusted=True)
        if isinstance(found, Verdict):
            reason = found.outcome if found.score is None else f"reference_{found.outcome}"
            return Golden(unusable=reason, detail=found.detail)
        driven, read = found
        if isinstance(read, Verdict):
            if self.problem.self_judging and read.passed:
                return Golden(cpu_s=driven.cpu_s, stdout_bytes=len(driven.stdout))
            return Golden(unusable=f"reference_{read.outcome}", detail=read.detail)
        if not read.samples:
            return Golden(unusable="reference_runtime", detail="no samples")
        return Golden(tuple(read.samples), read.timeout, driven.cpu_s, len(driven.stdout))

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
            return Judgement(found.outcome, found.detail, found.outcome)
        driven, read = found
        warned = official.refusal(self.problem.benchmark, driven.warnings, timeout=golden.timeout)
        if isinstance(read, Verdict):
            return Judgement(read.outcome, read.detail, warned if read.passed else read.outcome)
        exact = self._compare(read.samples, 0)
        verdict = (
            exact
            if exact.passed or not self.forgiven
            else self._compare(read.samples, self.forgiven)
        )
        return Judgement(verdict.outcome, verdict.detail, warned if exact.passed else exact.outcome)

    def _compare(self, samples: Sequence[str], forgiven: int) -> Verdict:
        assert self.outline is not None, "prepared"
        free = [Sample(0, 0)] * forgiven
        return compare_samples([*free, *self.wanted[forgiven:]], samples, self.outline.outputs)

    def _simulate(
        self, code: str, cpu_s: int, output_bytes: int, fill: str, *, trusted: bool
    ) -> tuple[Driven, Recording | Verdict] | Verdict:
        """Run `code` in the bench under a fresh mark. A verdict when there was no whole run."""
        assert self.outline is not None, "prepared"
        mark = secrets.token_hex(12)
        with verilog_simulation.bench(cpu_s) as bench:
            if trusted:
                bench.trust(code, self.problem.top)
                refused = None
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
            spare = shutil.disk_usage(bench.folder).free
        if isinstance(driven, Verdict):
            driven = Verdict(driven.score, driven.outcome, driven.detail.replace(f"m{mark}", ""))
            return _DISK_FULL if spare < _SPARE_DISK_BYTES else driven
        if self.problem.self_judging:
            return driven, read_verdict(driven.stdout, mark)
        read = read_recording(driven.stdout, mark)
        short = isinstance(read, Recording) and len(read.samples) < len(self.golden.samples)
        if short and spare < _SPARE_DISK_BYTES:
            return _DISK_FULL
        return driven, read


def _is_open(code: str) -> bool:
    """Whether the last module has no end."""
    words = [token.text for token in tokens_of(code) if token.kind == "word"]
    return words.count("module") > words.count("endmodule")


def _pack(golden: Golden) -> dict[str, Any]:
    packed = zlib.compress("\n".join(golden.samples).encode(), 6)
    return {**asdict(golden), "samples": base64.b64encode(packed).decode()}


def _unpack(kept: dict[str, Any]) -> Golden:
    text = zlib.decompress(base64.b64decode(kept["samples"])).decode()
    samples = tuple(text.split("\n")) if text else ()
    return Golden(**{**kept, "samples": samples})

"""A problem's reference, run once as the candidate in its own test bench.

    golden = record(problem)
    cache.put(key, asdict(golden))
    golden = unpack(cache.get(key))

Where the reference judges an answer, its outputs are the golden samples; a bench that judges by
itself must pass it.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
import zlib
from dataclasses import dataclass, replace
from typing import Any, Final

from evaluation.benchmarks.verilog.bench_run import Allowance, preprocess, run_in_bench
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
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog_golden import Sample
from evaluation.verifiers.verilog_simulation import Driven

FORM: Final = "3"  # of what is kept: raise it when that changes
CPU_S: Final = 120
OUTPUT_BYTES: Final = 64 << 20
# Room for samples, which a simulation pays for from its start; one that takes more is repeated.
_LEAST_ROOM, _MOST_ROOM = 1 << 13, 1 << 18
_REPEAT = re.compile(r"\brepeat\s*\(\s*(\d+)\s*\)")


@dataclass(frozen=True)
class Golden:
    """The recorded reference. `unusable` says why there is no recording, with a reason code.

    A bench that judges by itself has no samples.
    """

    packed: str = ""  # the samples' text, as the bench wrote it, zlib-compressed, in base64
    digest: str = ""  # of that text
    count: int = 0
    timeout: bool = False
    cpu_s: float = 0.0
    output_bytes: int = 0
    unusable: str = ""
    detail: str = ""
    outline: Outline | None = None  # the bench, preprocessed
    program: str = ""  # what was run, as `Bench.program` has it
    stdout: str = ""
    warnings: str = ""

    @functools.cached_property
    def samples(self) -> list[Sample]:
        """The samples; read only for a candidate whose own are not the same text."""
        return [Sample.parse(sample) for sample in self._text().split()]

    @functools.cached_property
    def run(self) -> Driven:
        """The run that was recorded, for a candidate that is the same program."""
        return Driven(self.stdout, self.warnings, self.cpu_s, self._text(), self.program)

    def _text(self) -> str:
        return zlib.decompress(base64.b64decode(self.packed)).decode() if self.packed else ""

    def is_same(self, recording: Recording) -> bool:
        """Whether a candidate put out exactly this."""
        return recording.samples == self.count and _digest(recording.text) == self.digest


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def record(problem: Problem) -> Golden:
    """Run the reference, or find why that cannot be; infra:* is a fault of the machine."""
    make = judging_bench if problem.self_judging else recording_bench
    try:
        outline = make(problem)
    except NoBench as reason:
        return Golden(unusable="bench", detail=str(reason))
    text = preprocess(outline.text, CPU_S)
    if isinstance(text, Verdict):
        return _unusable(text)
    outline = outline._replace(text=text)
    golden = _record_once(problem, outline, "0")
    if outline.reads_reference and not golden.unusable:
        other = _record_once(problem, outline, "1")
        if not other.unusable and other.digest != golden.digest:
            return Golden(unusable="bench", detail="the stimulus depends on the reference")
    return replace(golden, outline=outline)


def _record_once(problem: Problem, outline: Outline, fill: str, room: int = 0) -> Golden:
    room = room or _guess_room(outline.text)
    name = re.compile(rf"\b{re.escape(problem.reference_top)}\b")
    reference = name.sub(problem.top, problem.reference)
    run = run_in_bench(
        problem, outline, reference, Allowance(CPU_S, OUTPUT_BYTES, room, trusted=True), fill=fill
    )
    if isinstance(run, Verdict):
        return _unusable(run)
    about = Golden(
        cpu_s=run.cpu_s,
        output_bytes=len(run.stdout) + len(run.written),
        program=run.program,
        stdout=run.stdout,
        warnings=run.warnings,
    )
    if problem.self_judging:
        said = read_verdict(run.stdout, MARK)
        return about if said.passed else _unusable(said)
    read = read_recording(run.stdout, run.written, MARK)
    if isinstance(read, Verdict) or not read.samples:
        return Golden(unusable="reference_runtime", detail="no samples")
    if read.samples > room:
        return _record_once(problem, outline, fill, read.samples)
    packed = base64.b64encode(zlib.compress(read.text.encode(), 1)).decode()
    return replace(
        about, packed=packed, digest=_digest(read.text), count=read.samples, timeout=read.timeout
    )


def _guess_room(bench_text: str) -> int:
    """Two samples for each turn of the longest loop."""
    turns = max((int(count) for count in _REPEAT.findall(bench_text)), default=0)
    return min(max(_LEAST_ROOM, 2 * turns), _MOST_ROOM)


def _unusable(verdict: Verdict) -> Golden:
    reason = verdict.outcome if verdict.score is None else f"reference_{verdict.outcome}"
    return Golden(unusable=reason, detail=verdict.detail)


def unpack(kept: dict[str, Any]) -> Golden:
    """What `asdict` made of one, after it has been JSON."""
    outline = kept["outline"]
    if outline is not None:
        text, top, outputs, reads_reference = outline
        named = tuple((str(name), int(width)) for name, width in outputs)
        outline = Outline(text, top, named, reads_reference)
    return Golden(**{**kept, "outline": outline})

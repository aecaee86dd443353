"""`verilog_equiv`: is a module proved to behave like the reference, for all inputs?

    truth = record_equivalence(reference, "TopModule")     # ground truth, or Unusable with a reason
    verify(truth, answer)

Ground truth: that of `verilog_sim`, with `reference` (its code) and `depth` (cycles that a search
goes). First the answer is simulated as there, and what fails there fails here. Then yosys compares
it with the reference (`verilog_proof`):

- proved equal: pass;
- told apart by inputs, which are then played to both in Icarus Verilog: mismatch when the outputs
  really differ;
- else `undecided`, score None. It is no verdict: the proof did not converge, or yosys cannot read
  what Icarus can.

A pass needs both tools to agree. Without yosys there is no verdict (`infra:yosys`).
Not covered: timing; what the reference leaves undefined (X or Z) is free.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Final

from evaluation.verifiers import ground_truth as truths
from evaluation.verifiers import sandbox, verilog, verilog_simulation
from evaluation.verifiers.verdict import UNDECIDED, Verdict
from evaluation.verifiers.verilog import GRADE_CPU_S, Unusable, record_golden
from evaluation.verifiers.verilog_answer import extract_code
from evaluation.verifiers.verilog_golden import Golden, Sample, parse_ground_truth
from evaluation.verifiers.verilog_proof import DEPTH, Proof, prove
from evaluation.verifiers.verilog_simulation import Bench
from workspace.errors import MissingToolError

KIND: Final = "verilog_equiv"
MAX_DEPTH: Final = 64


def require_yosys() -> None:
    """Raises `MissingToolError` without it."""
    if shutil.which("yosys") is None:
        raise MissingToolError("yosys is not installed or not on PATH: apt install yosys")


def record_equivalence(
    reference: str, top: str, *, before: str = "", after: str = "", depth: int = DEPTH
) -> str | Unusable:
    """The ground truth for answers that must equal `reference`.

    `Unusable` when it makes no `verilog_sim` task, or is not proved equal to itself: no answer
    would be. Raises `MissingToolError` without simulator or yosys.
    """
    require_yosys()
    golden = record_golden(reference, top)
    if isinstance(golden, Unusable):
        return golden
    verdict = _compare(golden, reference, reference, depth)
    if not verdict.passed:
        return Unusable(f"reference_{verdict.outcome}", verdict.detail)
    simulated = json.loads(golden.ground_truth(before, after))
    return json.dumps({**simulated, "reference": reference, "depth": depth}, separators=(",", ":"))


def verify(ground_truth: str, answer: str) -> Verdict:
    """Verdict of `answer`. Raises `UserError` when the ground truth has another shape."""
    truth = truths.load(KIND, ground_truth)
    task = parse_ground_truth(ground_truth, KIND)
    reference = truths.text(KIND, truth, "reference")
    depth = truths.number(KIND, truth, "depth", DEPTH)
    if not 1 <= depth <= MAX_DEPTH:
        truths.wrong(KIND, "depth", f"1 to {MAX_DEPTH}", depth)
    if shutil.which("yosys") is None:
        return Verdict(None, "infra:yosys", "yosys is not on PATH")
    simulated = verilog.verify(ground_truth, answer)
    if not simulated.passed:
        return simulated
    code = extract_code(answer, task.golden.top, task.before, task.after)
    assert isinstance(code, str), "it was simulated"
    verdict = _compare(task.golden, reference, code, int(depth))
    return replace(verdict, detail=f"{verdict.detail} [{sandbox.level()}]".strip())


def _compare(golden: Golden, reference: str, code: str, depth: int) -> Verdict:
    with (
        verilog_simulation.bench(GRADE_CPU_S) as gold,
        verilog_simulation.bench(GRADE_CPU_S) as gate,
    ):
        for bench, text in ((gold, reference), (gate, code)):
            loaded = bench.load(text, golden.top)
            if isinstance(loaded, Verdict):
                return loaded
        with tempfile.TemporaryDirectory(prefix="dsm-proof-") as name:
            proof = prove(Path(name), gold.code(), gate.code(), golden.top, depth=depth)
        if isinstance(proof, Verdict):
            return proof
        if proof.result == "equal":
            return Verdict(1.0, "pass", proof.detail)
        found = _replay(golden, gold, gate, proof) if proof.steps else None
    return found or Verdict(None, UNDECIDED, proof.detail)


def _replay(golden: Golden, gold: Bench, gate: Bench, proof: Proof) -> Verdict | None:
    """Mismatch when the simulator, too, tells the two apart by the inputs found."""
    vectors: list[int] = []
    for step in proof.steps:
        packed = 0
        for port in golden.ports:
            if port.direction == "input":
                packed = packed << port.width | step.get(port.name, 0)
        vectors.append(packed)
    wanted = gold.play(golden.ports, vectors)
    said = gate.play(golden.ports, vectors)
    if isinstance(wanted, Verdict) or isinstance(said, Verdict):
        failed = wanted if isinstance(wanted, Verdict) else said
        return failed if isinstance(failed, Verdict) and failed.score is None else None
    verdict = golden.expect(map(Sample.parse, wanted)).compare(said)
    return None if verdict.passed else verdict


__all__ = ["record_equivalence", "require_yosys", "verify"]

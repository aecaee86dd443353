"""What the Verilog benchmarks share: upstream's problems, right answers, a run of the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.measure import shared_data
from evaluation.benchmarks.verilog.problems import Problem, read_benchmark

V2 = "verilog_eval_v2_code_complete"
PLACES = {
    V2: "verilog_eval_v2/dataset_code-complete-iccad2023",
    "verilog_eval_v1_human": "verilog_eval_v1",
    "verilog_eval_v1_machine": "verilog_eval_v1",
    "rtllm_v1.1": "rtllm_v1.1",
}
WORKERS = 2


class Ran(NamedTuple):
    """One run of the grading command: its summary and its verdict lines."""

    summary: dict[str, Any]
    verdicts: dict[tuple[str, int], str]


def problems_of(name: str) -> dict[str, Problem]:
    """Upstream's problems."""
    return read_benchmark(name, shared_data() / PLACES[name])


def right_answer(problem: Problem) -> str:
    """The reference under the name that is asked for."""
    return re.sub(rf"\b{problem.reference_top}\b", problem.top, problem.reference)


def rewritten(code: str, name: str) -> str:
    """The same behaviour as another program: with a wire that nothing reads."""
    before, end, after = code.rpartition("endmodule")
    return f"{before}  wire {name};\n{end}{after}"


def grade(
    name: str, answers: Iterable[tuple[str, int, str]], folder: Path, *flags: str, sandbox: str = ""
) -> Ran:
    """Run `python -m evaluation.grade` in `folder`, whose cache is kept between calls."""
    folder.mkdir(parents=True, exist_ok=True)
    given = folder / "answers.jsonl"
    with given.open("w") as stream:
        for task_id, sample, text in answers:
            stream.write(json.dumps({"task_id": task_id, "sample": sample, "answer": text}) + "\n")
    command = [
        sys.executable, "-m", "evaluation.grade",
        "--benchmark", f"{name}={shared_data() / PLACES[name]}",
        "--answers", str(given), "--out", str(folder / "verdicts.jsonl"),
        "--json", str(folder / "summary.json"), "--cache", str(folder / "cache"),
        "--workers", str(WORKERS), *flags,
    ]  # fmt: skip
    environment = {**os.environ, **({"DSM_SANDBOX": sandbox} if sandbox else {})}
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    lines = [json.loads(line) for line in (folder / "verdicts.jsonl").read_text().splitlines()]
    return Ran(
        json.loads((folder / "summary.json").read_text()),
        {(line["task_id"], line["sample"]): line["verdict"] for line in lines},
    )

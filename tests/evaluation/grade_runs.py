"""The grading command in a folder of its own, for the tests of grading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from scoring_inputs import STEP, STEP_SET

from evaluation import grade

V2 = "verilog_eval_v2_code_complete"


class Run:
    """Runs the command in a folder."""

    def __init__(self, folder: Path, benchmark: Path, name: str = STEP_SET) -> None:
        self.folder, self.benchmark, self.name = folder, benchmark, name

    def __call__(self, rows: list[dict[str, Any]] | str, *flags: str) -> int:
        text = rows if isinstance(rows, str) else "".join(json.dumps(r) + "\n" for r in rows)
        (self.folder / "answers.jsonl").write_text(text)
        return grade.main([
            "--benchmark", f"{self.name}={self.benchmark}",
            "--answers", str(self.folder / "answers.jsonl"),
            "--out", str(self.folder / "verdicts.jsonl"),
            "--cache", str(self.folder / "cache"),
            "--json", str(self.folder / "summary.json"), *flags,
        ])  # fmt: skip

    def lines(self) -> list[dict[str, Any]]:
        text = (self.folder / "verdicts.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def verdicts(self) -> list[str]:
        return [line["verdict"] for line in self.lines()]

    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return found


def answers(*texts: str, task: str = STEP) -> list[dict[str, Any]]:
    return [{"task_id": task, "sample": i, "answer": text} for i, text in enumerate(texts)]


def v2_folder(shared_data: Path) -> Path:
    return shared_data / "verilog_eval_v2" / "dataset_code-complete-iccad2023"

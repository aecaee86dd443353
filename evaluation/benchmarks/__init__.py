"""lm-eval tasks over a data set's test rows, one folder each, and which rows each takes.

    BENCHMARKS["domain_qa_open_book"].takes(row)

To add one: a folder with a YAML that lm-eval can load, and an entry in `BENCHMARKS`. The YAML's
`process_results` works on what `grading.grade` returns, so every benchmark is graded by the
row's own verifier. `tasks.write_task` joins a YAML with the rows of one evaluation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

_HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Benchmark:
    """One lm-eval task; `sampled` ones draw several answers a problem and report pass@k."""

    name: str
    title: str
    measures: str
    yaml: Path
    settings: frozenset[str]
    verifiers: frozenset[str]  # empty: all but verilog_sim
    sampled: bool

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the data set is a problem of this benchmark."""
        if row["kind"] != "test" or row["setting"] not in self.settings:
            return False
        if self.verifiers:
            return row["verifier"] in self.verifiers
        return row["verifier"] not in ("", "verilog_sim")

    @property
    def metric(self) -> str:
        """The headline metric."""
        return "pass@1" if self.sampled else "accuracy"


_ALL = (
    Benchmark(
        name="domain_qa_open_book",
        title="Domain QA, open book",
        measures="reading: the passage or table of a document kept out of training is given",
        yaml=_HERE / "domain_qa" / "open_book.yaml",
        settings=frozenset({"open_book"}),
        verifiers=frozenset(),
        sampled=False,
    ),
    Benchmark(
        name="domain_qa_closed_book",
        title="Domain QA, closed book",
        measures="knowledge: facts of the training documents, asked in forms not trained on",
        yaml=_HERE / "domain_qa" / "closed_book.yaml",
        settings=frozenset({"closed_book"}),
        verifiers=frozenset(),
        sampled=False,
    ),
    Benchmark(
        name="rtl_completion",
        title="RTL completion",
        measures="skill: the missing part of a held-out hardware module, checked by simulation",
        yaml=_HERE / "rtl_completion" / "rtl_completion.yaml",
        settings=frozenset({"skill"}),
        verifiers=frozenset({"verilog_sim"}),
        sampled=True,
    ),
)
BENCHMARKS: Mapping[str, Benchmark] = MappingProxyType({b.name: b for b in _ALL})

"""What can be scored: lm-eval tasks, a folder each, and which rows of a data set they take.

    BENCHMARKS["domain_qa_open_book"].takes(row)

To add one over a data set's rows: a folder with a YAML that lm-eval can load, and an entry in
`BENCHMARKS`. The YAML's `process_results` works on what `grading.grade` returns, so each row is
graded by its own verifier. Benchmarks with problems of their own are `problem_set.ProblemSet`s:
public Verilog ones in `verilog/`, your own in `local_set/`, lm-eval's in `harness_tasks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Benchmark:
    """One lm-eval task; `sampled` ones draw several answers a problem and report pass@k.

    `has_official` ones also have the verdict of upstream's own rules. `headline` is the metric of
    one that is neither ours nor sampled. `by_likelihood` ones generate nothing.
    """

    name: str
    title: str
    measures: str
    yaml: Path | None
    sampled: bool
    has_official: bool = False
    headline: str = "accuracy"
    by_likelihood: bool = False

    @property
    def metric(self) -> str:
        """The headline metric."""
        return "pass@1" if self.sampled else self.headline


@dataclass(frozen=True, kw_only=True)
class RowBenchmark(Benchmark):
    """A benchmark whose problems are test rows of a data set."""

    settings: frozenset[str]
    verifiers: frozenset[str] = frozenset()  # empty: all but verilog_sim
    only_tables: bool = False

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Whether a row of the data set is a problem of this benchmark."""
        if row["kind"] != "test" or row["setting"] not in self.settings:
            return False
        if self.only_tables and not row["table_id"]:
            return False
        if self.verifiers:
            return row["verifier"] in self.verifiers
        return row["verifier"] not in ("", "verilog_sim")


_ALL = (
    RowBenchmark(
        name="domain_qa_open_book",
        title="Domain QA, open book",
        measures="reading: the passage or table of a document kept out of training is given",
        yaml=HERE / "domain_qa" / "open_book.yaml",
        settings=frozenset({"open_book"}),
        sampled=False,
    ),
    RowBenchmark(
        name="domain_qa_closed_book",
        title="Domain QA, closed book",
        measures="knowledge: facts of the training documents, asked in forms not trained on",
        yaml=HERE / "domain_qa" / "closed_book.yaml",
        settings=frozenset({"closed_book"}),
        sampled=False,
    ),
    RowBenchmark(
        name="rtl_completion",
        title="RTL completion",
        measures="skill: the missing part of a held-out hardware module, checked by simulation",
        yaml=HERE / "rtl_completion" / "rtl_completion.yaml",
        settings=frozenset({"skill"}),
        verifiers=frozenset({"verilog_sim"}),
        sampled=True,
    ),
    RowBenchmark(
        name="table_qa",
        title="Table QA",
        measures="reading: the open-book questions whose evidence is a table",
        yaml=HERE / "domain_qa" / "table_qa.yaml",
        settings=frozenset({"open_book"}),
        only_tables=True,
        sampled=False,
    ),
)
BENCHMARKS: Mapping[str, RowBenchmark] = MappingProxyType({b.name: b for b in _ALL})
# table_qa's questions are among those of open_book already.
DEFAULT_BENCHMARKS = tuple(name for name in BENCHMARKS if name != "table_qa")
SHORT_NAMES: Mapping[str, str] = MappingProxyType(
    {name.removeprefix("domain_qa_"): name for name in BENCHMARKS}
)

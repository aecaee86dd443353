"""Problems that are known to be faulty, and which of them a score leaves out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from grade_runs import V2, Run, answers

from evaluation.benchmarks.verilog.contents import known_ids
from evaluation.benchmarks.verilog.errata import Erratum, read_errata
from evaluation.benchmarks.verilog.public_set import read_public_set, refuse_too_many_unusable
from evaluation.benchmarks.verilog.summary import excluded_by
from evaluation.graded_elsewhere import only
from evaluation.verifiers.verilog import BrokenToolchainError, tool_version
from workspace.errors import UserError

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)


def test_errata_name_real_problems() -> None:
    known, errata = known_ids(), read_errata()
    assert {name for e in errata.errata for name in e.benchmarks} == set(known)
    unknown = {
        (name, e.problem)
        for e in errata.errata
        for name in e.benchmarks
        if e.problem not in known[name]
    }
    assert not unknown


@pytest.mark.parametrize(
    ("name", "version", "excluded"),
    [
        (V2, "12", {"Prob053_m2014_q4d"}),
        ("rtllm_v1.1", "11", {"asyn_fifo", "div_16bit", "radix2_div"}),
        ("rtllm_v1.1", "12", {"asyn_fifo", "div_16bit", "radix2_div", "pe"}),
        ("rtllm_v2.0", "11", {"asyn_fifo", "clkgenerator", "radix2_div", "ring_counter"}),
        ("rtllm_v2.0", "12", {"asyn_fifo", "clkgenerator", "radix2_div", "ring_counter"}),
    ],
)
def test_errata_exclude_what_cannot_be_judged(name: str, version: str, excluded: set[str]) -> None:
    found = read_errata().of(name, f"Icarus Verilog {version}.0")
    assert set(excluded_by(found, {})) == excluded


def test_the_errata_exclude_every_reference_that_cannot_be_run_here(
    shared_data: Path, tmp_path: Path
) -> None:
    source = shared_data / "rtllm_v1.1"
    found = read_public_set("rtllm_v1.1", source, limit=None, seed=0, cache=tmp_path / "cache")
    by_errata = excluded_by(read_errata().of("rtllm_v1.1", tool_version()), {})
    assert found.prepare() == by_errata


def test_a_small_choice_of_known_broken_problems_is_no_broken_simulator(
    shared_data: Path, tmp_path: Path
) -> None:
    """Two of three: their errata say why, and the third one runs."""
    source = shared_data / "rtllm_v1.1"
    found = read_public_set("rtllm_v1.1", source, limit=None, seed=0, cache=tmp_path / "cache")
    few = only(found, ["radix2_div", "asyn_fifo", "adder_8bit"])
    assert set(few.prepare()) == {"radix2_div", "asyn_fifo"}
    run = Run(tmp_path, source, "rtllm_v1.1")
    right = {n: p.reference.replace(p.reference_top, p.top) for n, p in few.problems.items()}
    rows = [row for name, text in right.items() for row in answers(text, task=name)]
    assert run(rows, "--only-answered") == 0
    assert run.summary()["audited"]["passed"] == 1


def test_the_toolchain_is_judged_by_the_problems_that_have_no_errata() -> None:
    broken = {
        f"p{n}": [Erratum(benchmarks=(V2,), problem=f"p{n}", effect=effect, what="w", evidence="e")]
        for n, effect in enumerate(("exclude", "exclude", "exclude", "note"))
    }
    unusable = dict.fromkeys(("p0", "p1", "p2", "p4"), "compile")
    names = [f"p{n}" for n in range(10)]
    refuse_too_many_unusable(V2, unusable, names, broken)  # one of seven
    for more in ("p3", "p5"):  # one with a note is expected to run
        with pytest.raises(BrokenToolchainError, match="2 of 7 references"):
            refuse_too_many_unusable(V2, {**unusable, more: "compile"}, names, broken)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"evidence": ""}, "evidence"),
        ({"evidence": " "}, "evidence"),
        ({"what": ""}, "what"),
        ({"problem": ""}, "problem"),
        ({"benchmarks": []}, "benchmarks"),
        ({"effect": "ignore"}, "effect"),
    ],
)
def test_an_erratum_without_its_evidence_is_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    whole = {"benchmarks": [V2], "problem": "p", "effect": "note", "what": "w", "evidence": "e"}
    path = tmp_path / "errata.yaml"
    path.write_text(json.dumps({"version": 1, "errata": [whole]}))
    assert read_errata(path).errata
    path.write_text(json.dumps({"version": 1, "errata": [{**whole, **change}]}))
    with pytest.raises(UserError, match=rf"(?s)errata\.yaml.*{said}"):
        read_errata(path)


def test_a_broken_errata_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "errata.yaml").write_text("version: 1\nerrata: [{problem: x}]\n")
    with pytest.raises(UserError, match=r"errata\.yaml"):
        read_errata(tmp_path / "errata.yaml")

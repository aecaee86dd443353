"""No folder is scored under the name of a benchmark that it is not, or not wholly."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from scoring_inputs import STEP_HEADER, STEP_SET, write_step_benchmark

from evaluation.benchmarks.verilog import self_test
from evaluation.benchmarks.verilog.contents import known_ids
from evaluation.benchmarks.verilog.problems import read_benchmark
from evaluation.benchmarks.verilog.public_set import read_public_set
from workspace.errors import UserError

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)

COMPLETE, SPEC = "verilog_eval_v2_code_complete", "verilog_eval_v2_spec_to_rtl"
HUMAN, MACHINE = "verilog_eval_v1_human", "verilog_eval_v1_machine"
FEW = "fetch upstream's folder again; --limit asks fewer"


def write_v2(folder: Path, *, header: bool) -> Path:
    """All ids of VerilogEval v2 in one of its forms; each problem is the self-test's counter."""
    folder.mkdir()
    for name in known_ids()[COMPLETE]:
        (folder / f"{name}_prompt.txt").write_text(
            f"Step by three.\n\n{STEP_HEADER}" if header
            else "I would like you to implement a module named TopModule;\nit steps by three.\n"
        )  # fmt: skip
        (folder / f"{name}_ref.sv").write_text(self_test._REFERENCE)
        (folder / f"{name}_test.sv").write_text(self_test._BENCH)
        (folder / f"{name}_ifc.txt").write_text(STEP_HEADER)
    return folder


def write_v1(folder: Path, name: str, ids: frozenset[str]) -> Path:
    folder.mkdir()
    test = self_test._BENCH + self_test._REFERENCE.replace("RefModule", "reference_module")
    lines = [{"task_id": one, "prompt": STEP_HEADER, "test": test} for one in sorted(ids)]
    path = folder / name
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read(name: str, source: Path, limit: int | None = None) -> int:
    cache = source.parent / "cache"
    return len(read_public_set(name, source, limit=limit, seed=0, cache=cache).rows)


def test_a_form_of_verilog_eval_v2_is_not_scored_as_the_other(tmp_path: Path) -> None:
    complete = write_v2(tmp_path / "complete", header=True)
    spec = write_v2(tmp_path / "spec", header=False)
    assert read(COMPLETE, complete) == read(SPEC, spec) == 156
    with pytest.raises(UserError, match=r"_prompt\.txt ends with .* not so in .*spec-to-rtl"):
        read(SPEC, complete)
    with pytest.raises(UserError, match=r"_prompt\.txt does not end .*code-complete-iccad2023"):
        read(COMPLETE, spec)


def test_problems_that_are_missing_whole_are_named(tmp_path: Path) -> None:
    folder = write_v2(tmp_path / "v2", header=True)
    for name in ("Prob001_zero", "Prob077_wire_decl", "Prob156_review2015_fancytimer"):
        for path in folder.glob(f"{name}_*"):
            path.unlink()
    said = (
        f"{re.escape(str(folder))} is not {COMPLETE}: of its 156 problems 3 are missing "
        rf"\(Prob001_zero, Prob077_wire_decl, Prob156_review2015_fancytimer\): {FEW}"
    )
    with pytest.raises(UserError, match=said):
        read(COMPLETE, folder)
    with pytest.raises(UserError, match="3 are missing"):
        read(COMPLETE, folder, limit=5)
    shutil.copy(folder / "Prob002_m2014_q4i_ifc.txt", folder / "Prob200_mine_ifc.txt")
    for kind in ("prompt.txt", "ref.sv", "test.sv"):
        shutil.copy(folder / f"Prob002_m2014_q4i_{kind}", folder / f"Prob200_mine_{kind}")
    with pytest.raises(UserError, match=r"3 are missing .* and 1 are not its own \(Prob200_mine"):
        read(COMPLETE, folder)
    assert read(f"{COMPLETE}_layout", folder, limit=5) == 5


def test_a_deliberate_part_of_a_whole_benchmark_is_the_limits(tmp_path: Path) -> None:
    assert read(COMPLETE, write_v2(tmp_path / "v2", header=True), limit=5) == 5


def test_human_and_machine_of_verilog_eval_v1_are_told_apart(tmp_path: Path) -> None:
    human = write_v1(tmp_path / "h", "VerilogEval_Human.jsonl", known_ids()[HUMAN])
    machine = write_v1(tmp_path / "m", "VerilogEval_Machine.jsonl", known_ids()[MACHINE])
    assert len(read_benchmark(HUMAN, human)) == 156
    assert len(read_benchmark(MACHINE, machine)) == 143
    with pytest.raises(UserError, match=f"13 are missing .*the problems of {MACHINE}"):
        read_benchmark(HUMAN, machine)
    with pytest.raises(UserError, match=f"13 are not its own .*the problems of {HUMAN}"):
        read_benchmark(MACHINE, human)


def test_a_set_of_ones_own_has_neither_errata_nor_the_benchmarks_name(tmp_path: Path) -> None:
    folder = write_step_benchmark(tmp_path / "own", problems=3)
    with pytest.raises(UserError, match=f"156 are missing .*given as {STEP_SET}="):
        read(COMPLETE, folder)
    found = read_public_set(STEP_SET, folder, limit=None, seed=0, cache=tmp_path / "cache")
    assert found.benchmark.name == STEP_SET
    assert "Your own problems" in found.benchmark.title
    with pytest.raises(UserError, match="unknown benchmark 'local_set_layout'"):
        read_benchmark("local_set_layout", folder)


def test_upstreams_own_files_are_whole_and_not_each_other(
    shared_data: Path, tmp_path: Path
) -> None:
    v2 = shared_data / "verilog_eval_v2" / "dataset_code-complete-iccad2023"
    v1 = shared_data / "verilog_eval_v1" / "data"
    rtllm = shared_data / "rtllm_v1.1"
    swapped = {
        SPEC: (v2, "ends with the module's header"),
        "rtllm_v2.0": (rtllm, "21 are missing .*the problems of rtllm_v1.1"),
        HUMAN: (v1 / "VerilogEval_Machine.jsonl", "13 are missing"),
        MACHINE: (v1 / "VerilogEval_Human.jsonl", "13 are not its own"),
    }
    for name, (place, said) in swapped.items():
        with pytest.raises(UserError, match=said):
            read(name, place)
    spec = Path(shutil.copytree(v2, tmp_path / "spec"))
    for path in spec.glob("*_prompt.txt"):  # as upstream's other form has them
        path.write_text(path.read_text().rpartition("module TopModule")[0])
    assert read(SPEC, spec) == 156
    holed = Path(shutil.copytree(rtllm, tmp_path / "holed"))
    shutil.rmtree(holed / "accu")
    with pytest.raises(UserError, match=r"of its 29 problems 1 are missing \(accu\)"):
        read("rtllm_v1.1", holed)


def test_every_public_benchmark_is_read_in_upstreams_layout(
    shared_data: Path, tmp_path: Path
) -> None:
    places = {
        COMPLETE: shared_data / "verilog_eval_v2" / "dataset_code-complete-iccad2023",
        HUMAN: shared_data / "verilog_eval_v1",
        MACHINE: shared_data / "verilog_eval_v1" / "data",
        "rtllm_v1.1": shared_data / "rtllm_v1.1",
    }
    sizes = {}
    for name, place in places.items():
        found = read_public_set(name, place, limit=None, seed=0, cache=tmp_path)
        sizes[name] = len(found.rows)
        for row in found.rows:
            prompt = json.loads(row["prompt_json"])[-1]["content"]
            assert len(prompt) > 60
            assert row["answer"].strip() not in prompt, "the reference is no part of it"
    assert list(sizes.values()) == [156, 156, 143, 29]


def test_designs_in_folders_by_category_are_found(shared_data: Path, tmp_path: Path) -> None:
    """RTLLM v2.0's layout, with designs of v1.1."""

    for place in ("Arithmetic/Adder/adder_8bit", "Control/Counter/counter_12"):
        shutil.copytree(shared_data / "rtllm_v1.1" / Path(place).name, tmp_path / place)
    found = read_public_set("rtllm_v2.0_layout", tmp_path, limit=None, seed=0, cache=tmp_path / "c")
    assert [row["row_id"] for row in found.rows] == ["adder_8bit", "counter_12"]
    assert found.prepare() == {}

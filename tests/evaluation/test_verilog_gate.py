"""Honest answers pass whatever else they hold; no attack makes a wrong module pass."""

from __future__ import annotations

import re
import shutil

import pytest
from honest_verilog import COUNTER, HONEST
from hypothesis import given
from hypothesis import strategies as st
from scoring_inputs import STEP_RIGHT, STEP_WRONG
from verilog_attacks import ATTACKS, LEFT_BEHIND, Attack

from evaluation.benchmarks.verilog import grader, self_test
from evaluation.benchmarks.verilog.cache import Cache
from evaluation.benchmarks.verilog.problems import Problem
from evaluation.verifiers import verify
from evaluation.verifiers.verdict import Verdict
from evaluation.verifiers.verilog import Golden, record_golden
from evaluation.verifiers.verilog_cuts import STATEMENTS
from evaluation.verifiers.verilog_gate import FORBIDDEN_WORDS, SYSTEM_FUNCTIONS, clean_code
from evaluation.verifiers.verilog_tokens import tokens_of

pytestmark = pytest.mark.skipif(
    shutil.which("iverilog") is None, reason="iverilog is not installed"
)

WRONG = COUNTER.replace("4'd1", "4'd2")
HEAVY = "uses the machine up"
LIGHT = [(kind, name) for kind, some in ATTACKS.items() if kind != HEAVY for name in some]


@pytest.fixture(scope="module")
def truths() -> dict[str, str]:
    """The ground truth of each reference."""
    found = {}
    for reference in {honest.reference for honest in HONEST.values()}:
        top = re.search(r"module (\w+)", reference)
        assert top is not None
        golden = record_golden(reference, top[1])
        assert isinstance(golden, Golden), golden
        found[reference] = golden.ground_truth()
    return found


@pytest.fixture(scope="module")
def step(tmp_path_factory: pytest.TempPathFactory) -> grader.ProblemGrader:
    """A problem with a test bench of VerilogEval's mould."""
    problem = Problem(
        "verilog_eval_v2_code_complete",
        "step",
        "TopModule",
        self_test._BENCH,
        self_test._REFERENCE,
        "RefModule",
    )
    made = grader.ProblemGrader(problem, Cache(tmp_path_factory.mktemp("cache")))
    assert not made.prepare().unusable
    return made


def judge(step: grader.ProblemGrader, answer: str) -> grader.Judgement:
    code = step.extract(answer)
    if isinstance(code, Verdict):
        return grader.Judgement(code.outcome, code.detail, code.outcome)
    return step.judge(code)


@pytest.mark.parametrize("name", sorted(HONEST))
def test_a_right_answer_passes(truths: dict[str, str], name: str) -> None:
    honest = HONEST[name]
    verdict = verify("verilog_sim", truths[honest.reference], honest.answer)
    assert (verdict.outcome, verdict.score) == ("pass", 1.0), verdict


@pytest.mark.parametrize(
    "name",
    [
        "concurrent_assertions", "immediate_assertions", "log_file", "stop_on_a_wrong_state",
        "directives", "escaped_names", "dump_for_cocotb", "comments_with_code", "cover_group",
    ],
)  # fmt: skip
def test_a_right_answer_passes_in_a_public_bench(step: grader.ProblemGrader, name: str) -> None:
    """What surrounds the counter of the honest answers, around the right step by three."""
    answer = HONEST[name].answer
    start, end = answer.index("module counter("), answer.index("assign wrap")
    before, rest = answer[:start], answer[start:end]
    inside = rest.partition("q <= q + 1;")[2].replace("rst_n", "(!reset)").replace("wrap", "q[0]")
    inside = inside.replace("+ 4'd1", "+ 4'd3")
    judged = judge(step, Attack(before=before, inside=f"wire en = 1;{inside}").on(STEP_RIGHT))
    assert judged.outcome == "pass", judged
    assert judged.official == (
        "concurrent assertion: syntax error (S)" if name == "concurrent_assertions" else ""
    )


@pytest.mark.parametrize(("kind", "name"), LIGHT, ids=[name for _, name in LIGHT])
def test_an_attack_makes_no_wrong_module_pass(
    truths: dict[str, str], step: grader.ProblemGrader, kind: str, name: str
) -> None:
    attack = ATTACKS[kind][name]
    assert verify("verilog_sim", truths[COUNTER], attack.on(WRONG)).score == 0.0
    outcome = judge(step, attack.on(STEP_WRONG)).outcome
    assert outcome != "pass"
    assert not outcome.startswith("infra")
    assert not LEFT_BEHIND.exists()


@pytest.mark.parametrize("name", sorted(ATTACKS[HEAVY]))
def test_an_answer_that_uses_the_machine_up_is_ended(
    step: grader.ProblemGrader, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grader, "MIN_CPU_S", 1)
    outcome = judge(step, ATTACKS[HEAVY][name].on(STEP_WRONG)).outcome
    assert outcome.startswith(("limit:", "compile", "mismatch", "runtime"))
    assert judge(step, STEP_RIGHT).outcome == "pass"  # the next answer is judged as ever


@pytest.mark.parametrize(
    "macro",
    [
        '`define A(x) `x "/dev/null"\n`A(include)\n',
        '`define A(x) ```x "/dev/null"\n`A(include)\n',
        '`define A(x) x "/dev/null"\n`A(`include)\n',
        '`define A `include "/dev/null"\n`A\n',
        '`ifndef NEVER\n`include "/dev/null"\n`endif\n',
    ],
)
def test_a_file_that_a_macro_reads_is_noticed(truths: dict[str, str], macro: str) -> None:
    """The reference may lie somewhere on the machine, and not every sandbox hides it."""
    verdict = verify("verilog_sim", truths[COUNTER], f"{macro}{COUNTER}")
    assert (verdict.outcome, verdict.score) == ("rejected:include", 0.0)


_PIECES = st.sampled_from([
    *sorted(STATEMENTS)[:6], "$finish", "$fopen", "(", ")", "(1)", ";", "else", "if (1)", "begin",
    "end", "case (q)", "endcase", "assert", "property", "endproperty", "final", "default",
    "disable iff", "clocking", ":", "x", "\n", " ", "4'h", '"', "/", "/*", "*/", "//", "endmodule",
    "force", "tb", ".", "`", "\\a", "specify", "module", "0",
])  # fmt: skip


@given(st.lists(_PIECES, max_size=30))
def test_what_is_compiled_was_gated_whatever_was_cut(pieces: list[str]) -> None:
    """Cutting must not join what is left into something that the gate has not seen."""
    cleaned = clean_code(f"module m(input q);\n{''.join(pieces)}\nendmodule", "m")
    if isinstance(cleaned, Verdict):
        assert cleaned.score == 0.0
        return
    for token in tokens_of(cleaned):
        assert token.text not in FORBIDDEN_WORDS
        assert token.kind != "system" or token.text in SYSTEM_FUNCTIONS
        assert token.kind != "open"
    again = clean_code(cleaned, "m")
    assert isinstance(again, Verdict) or tokens_of(again) == tokens_of(cleaned)


@pytest.mark.parametrize(
    "text",
    [
        "initial begin " + "$display(1);" * 8000 + " end",
        "initial " + "assert (q) if (q) " * 5000 + ";",
        "final " + "begin " * 15000,
        "assert " * 14000,
        "property " * 10000,
        "initial $display" + "(" * 90000,
        "wire x; " + "x.y " * 20000,
    ],
    ids=["calls", "ifs", "begins", "assertions", "properties", "parentheses", "names"],
)
def test_a_text_that_nests_without_end_is_read(text: str) -> None:
    """By recursion or quadratic work, each would end the process or take minutes."""
    clean_code(f"module m(input q);\n{text}\nendmodule", "m")


def test_the_reason_of_a_compile_error_is_the_error_not_a_warning(truths: dict[str, str]) -> None:
    text = COUNTER.replace("4'd15)", "4'd15) + 9'd600 + nothing").replace("4'd1;", "4'd17;")
    verdict = verify("verilog_sim", truths[COUNTER], text)
    assert verdict.outcome == "compile"
    assert "nothing" in verdict.detail

"""Verdicts on written answers: right ones in many spellings pass, hedges and echoes do not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluation.verifiers import KINDS, verify
from evaluation.verifiers.extraction import MAX_CHARS, code_or_answer
from workspace.errors import UserError

CHOICES = {"letter": "B", "choices": ["8", "16", "32", "64"]}
CURRENT = {"value": 12.4, "unit": "mA", "rtol": 0.005}
PORTS = {"items": ["clk", "rst", "en"]}
SETTING = {
    "schema": {
        "type": "object",
        "properties": {
            "width": {"type": "integer", "minimum": 8},
            "ports": {"type": "array", "uniqueItems": True,
                      "items": {"type": "string", "pattern": "^[a-z_]+$"}},
        },
        "required": ["width", "ports"],
        "additionalProperties": False,
    }
}  # fmt: skip
ADDRESS = {"pattern": "0x[0-9A-F]{4}"}
TEXT_TRUTHS = {
    "regex": ADDRESS,
    "json_schema": SETTING,
    "exact": {"value": "posedge"},
    "alias": {"aliases": ["WB", "Wishbone"]},
    "choice": CHOICES,
    "set": PORTS,
    "numeric": CURRENT,
}


def outcome(kind: str, truth: object, answer: str) -> str:
    return verify(kind, json.dumps(truth), answer).outcome


@pytest.mark.parametrize(
    ("kind", "truth", "answer"),
    [
        ("exact", {"value": "posedge"}, "posedge"),
        ("exact", {"value": "posedge"}, "  `Posedge`. "),
        ("exact", {"value": "posedge"}, "It clocks on an edge.\nAnswer: posedge"),
        ("exact", {"value": "posedge"}, r"So it is \boxed{\text{posedge}}."),
        ("exact", {"value": "posedge"}, "<think>negedge? no.</think>\nposedge"),
        ("exact", {"value": "clk_i", "case_sensitive": True}, "**Answer:** `clk_i`"),
        ("alias", {"aliases": ["WB", "Wishbone"]}, "The answer is Wishbone."),
        ("choice", CHOICES, "B"),
        ("choice", CHOICES, "(b)"),
        ("choice", CHOICES, "B) 16"),
        ("choice", CHOICES, "The correct answer is (B) 16."),
        ("choice", CHOICES, "16"),
        ("choice", {"letter": "C"}, "Option C"),
        ("set", PORTS, "en, clk and rst"),
        ("set", PORTS, '["rst", "en", "clk"]'),
        ("set", PORTS, "- clk\n- rst\n- en"),
        ("regex", ADDRESS, "0x00FF"),
        ("regex", ADDRESS, "The register lies there.\n**Answer:** `0x00FF`."),
        ("regex", {**ADDRESS, "case_sensitive": False}, "<think>0x1</think> 0x00ff"),
        ("regex", {"pattern": r"\d+\.\d+ mA"}, "1.0 mA"),
        ("json_schema", SETTING, '{"width": 8, "ports": ["clk", "rst_n"]}'),
        ("json_schema", SETTING, 'So:\n```json\n{"width": 9.0, "ports": []}\n```\nDone.'),
        ("json_schema", SETTING, '```\n{}\n```\nor rather\n```\n{"ports": [], "width": 16}'),
        ("json_schema", {"schema": {"$ref": "#/$defs/n", "$defs": {"n": {"const": 3}}}}, "3"),
        ("numeric", CURRENT, "12.4 mA"),
        ("numeric", CURRENT, "12.4"),
        ("numeric", CURRENT, "0.0124 A"),
        ("numeric", CURRENT, "12.4 milliamps"),
        ("numeric", CURRENT, "The typical supply current is 12.45 mA."),
        ("numeric", {"value": 1e6, "unit": "Hz"}, "1 MHz"),
        ("numeric", {"value": 1e6, "unit": "Hz"}, "1×10^6 Hz"),
        ("numeric", {"value": 1e6, "unit": "Hz"}, r"\boxed{1{,}000\ \text{kHz}}"),
        ("numeric", {"value": 1.5, "unit": "V/µs"}, "1.5 V/us"),
        ("numeric", {"value": 25, "unit": "°C"}, "25 degrees Celsius"),
        ("numeric", {"value": 5, "unit": "%"}, "5 percent"),
        ("numeric", {"value": 16, "unit": "bit"}, "2 bytes"),
        ("numeric", {"value": 2.5, "unit": "mm²"}, "2.5 mm^2"),
        ("numeric", {"value": -3}, "\u22123"),
        ("numeric", {"value": 3}, "3 modules"),
        ("numeric", {"value": 1200}, "1,200"),
    ],
)
def test_a_right_answer_passes(kind: str, truth: object, answer: str) -> None:
    verdict = verify(kind, json.dumps(truth), answer)
    assert (verdict.outcome, verdict.score) == ("pass", 1.0)


@pytest.mark.parametrize(
    ("kind", "truth", "answer", "expected"),
    [
        ("exact", {"value": "posedge"}, "posedge or negedge", "mismatch"),
        ("exact", {"value": "posedge"}, "Answer: posedge\nAnswer: negedge", "rejected:ambiguous"),
        ("exact", {"value": "posedge"}, r"\boxed{posedge} \boxed{negedge}", "rejected:ambiguous"),
        ("exact", {"value": "posedge"}, "<think>posedge", "no_answer"),
        ("exact", {"value": "clk_i", "case_sensitive": True}, "CLK_I", "mismatch"),
        ("exact", {"value": "12"}, "\uff11\uff12", "rejected:digits"),
        ("alias", {"aliases": ["WB", "Wishbone"]}, "WB, Wishbone, AXI", "mismatch"),
        ("choice", CHOICES, "A) 8 B) 16 C) 32 D) 64", "no_answer"),
        ("choice", CHOICES, "A, B, C, D", "no_answer"),
        ("choice", CHOICES, "B or C", "no_answer"),
        ("choice", CHOICES, "B 32", "no_answer"),
        ("choice", CHOICES, "E", "no_answer"),
        ("choice", CHOICES, "A", "mismatch"),
        ("set", PORTS, "clk, rst, en, d, q, a, b, c", "mismatch"),
        ("regex", ADDRESS, "0x00FF or 0x00FE", "mismatch"),
        ("regex", ADDRESS, "0x00ff", "mismatch"),
        ("regex", ADDRESS, "0x00FF\n0x00FF", "mismatch"),
        ("json_schema", SETTING, '{"width": 4, "ports": []}', "mismatch"),
        ("json_schema", SETTING, '{"width": true, "ports": []}', "mismatch"),
        ("json_schema", SETTING, '{"width": 8, "ports": ["a", "a"]}', "mismatch"),
        ("json_schema", SETTING, '{"width": 8, "ports": ["A"]}', "mismatch"),
        ("json_schema", SETTING, '{"width": 8, "ports": [], "more": 1}', "mismatch"),
        ("json_schema", SETTING, '{"width": 8, "width": 9, "ports": []}', "rejected:ambiguous"),
        ("json_schema", SETTING, '{"width": NaN, "ports": []}', "no_answer"),
        ("json_schema", SETTING, "{'width': 8, 'ports': []}", "no_answer"),
        ("json_schema", SETTING, '{"width": 8, "ports": []} {}', "no_answer"),
        ("numeric", CURRENT, "12.4 or 12.5 mA", "rejected:ambiguous"),
        ("numeric", CURRENT, "11.1 mA", "mismatch"),
        ("numeric", CURRENT, "12.4 MA", "mismatch"),
        ("numeric", CURRENT, "12.4 mV", "mismatch"),
        ("numeric", CURRENT, "1e308 mA", "mismatch"),
        ("numeric", CURRENT, "1e999", "mismatch"),
        ("numeric", CURRENT, "nan", "no_answer"),
        ("numeric", CURRENT, "M12.4", "no_answer"),
        ("numeric", CURRENT, "12.4 mA " + "because of the load " * 10, "rejected:wordy"),
        ("numeric", {**CURRENT, "unit_required": True}, "12.4", "mismatch"),
        ("numeric", {"value": 25, "unit": "°C"}, "25 K", "mismatch"),
        ("numeric", {"value": 3}, "3 mA", "mismatch"),
    ],
)
def test_a_wrong_answer_or_a_hedge_fails(
    kind: str, truth: object, answer: str, expected: str
) -> None:
    verdict = verify(kind, json.dumps(truth), answer)
    assert (verdict.outcome, verdict.score) == (expected, 0.0)


PROMPT = (
    "Read the passage. The core has the ports clk, rst and en, is triggered on posedge or negedge "
    "and draws 12.4 mA at 3.3 V over the Wishbone (WB) bus.\n"
    "How wide is the bus? A) 8 B) 16 C) 32 D) 64\nAnswer:"
)
HOSTILE = [
    "", " \n\t", ".", "```", PROMPT, "A B C D", "8 16 32 64", "1e308", "9" * 5000, "١٢٫٤",
    r"\boxed{A}\boxed{B}\boxed{C}\boxed{D}", r"\boxed{", "[" * 5000, "{" * 5000, "x" * 10**6,
    "12.4 " * 4000, "B\n" * 5000, "posedge " * 2000, "None", "null", "true", "\x00", "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("kind", sorted(TEXT_TRUTHS))
@pytest.mark.parametrize("answer", HOSTILE, ids=range(len(HOSTILE)))
def test_the_adversarial_suite_scores_nothing(kind: str, answer: str) -> None:
    assert verify(kind, json.dumps(TEXT_TRUTHS[kind]), answer).score == 0.0


@pytest.mark.parametrize("kind", sorted(TEXT_TRUTHS))
@given(answer=st.text(max_size=300))
def test_any_text_gets_a_verdict(kind: str, answer: str) -> None:
    score = verify(kind, json.dumps(TEXT_TRUTHS[kind]), answer).score
    assert score is not None
    assert 0.0 <= score <= 1.0


def test_a_set_scores_f1_and_one_only_when_whole() -> None:
    verdict = verify("set", json.dumps(PORTS), "clk, rst")
    assert verdict.outcome == "partial"
    assert verdict.score == pytest.approx(2 * 2 / (3 + 2))
    assert not verdict.passed


@given(
    value=st.floats(1e-6, 1e6),
    prefix=st.sampled_from([("m", 1e-3), ("k", 1e3), ("u", 1e-6), ("M", 1e6), ("n", 1e-9)]),
    unit=st.sampled_from(["V", "A", "Hz", "W", "s", "F"]),
)
def test_a_prefix_only_moves_the_point(value: float, prefix: tuple[str, float], unit: str) -> None:
    letter, scale = prefix
    truth = json.dumps({"value": value, "unit": unit, "rtol": 1e-6})
    assert verify("numeric", truth, f"{value / scale:.12g} {letter}{unit}").passed
    assert not verify("numeric", truth, f"{1.1 * value / scale:.12g} {letter}{unit}").passed


def test_an_answer_that_is_too_long_is_not_read() -> None:
    text = "x" * MAX_CHARS + "\nAnswer: posedge"
    assert outcome("exact", {"value": "posedge"}, text) == "rejected:too_long"


def test_reasoning_is_no_part_of_an_answers_length_or_digits() -> None:
    text = f"<think>{'٣ or Answer: negedge? ' * MAX_CHARS}</think>\n```\nposedge\n```\n"
    assert code_or_answer(text) == "posedge\n"
    assert outcome("exact", {"value": "posedge"}, f"{text}Answer: posedge") == "pass"


@pytest.mark.parametrize(
    ("kind", "truth"),
    [
        ("exact", {"values": ["x"]}),
        ("alias", {"aliases": []}),
        ("choice", {"letter": "Q", "choices": ["a", "b"]}),
        ("set", {"items": "clk"}),
        ("numeric", {"value": "12"}),
        ("numeric", {"value": 1, "rtol": 5}),
        ("regex", {"pattern": ""}),
        ("regex", {"pattern": ".*"}),
        ("json_schema", {"schema": {}}),
        ("json_schema", {"schema": {"type": "nonsense"}}),
        ("json_schema", {"schema": {"$ref": "http://example.org/schema.json"}}),
        ("json_schema", {"schema": {"$ref": "#/$defs/absent"}}),
        ("json_schema", {"schema": {"patternProperties": {"a": {}}}}),
        ("verilog_sim", {"top": "x"}),
        ("verilog_equiv", {"top": "x"}),
        ("no_such_kind", {}),
    ],
)
def test_a_wrong_ground_truth_is_the_users_error(kind: str, truth: object) -> None:
    with pytest.raises(UserError, match=kind):
        verify(kind, json.dumps(truth), "B")
    with pytest.raises(UserError):
        verify(kind, "not json", "B")


@pytest.mark.parametrize("pattern", ["(?=a)a", r"(a)\1", "((a{100}){100}){100}", "(", "a" * 2000])
def test_a_pattern_that_could_explode_is_refused(pattern: str) -> None:
    for kind, truth in (("regex", {"pattern": pattern}),
                        ("json_schema", {"schema": {"pattern": pattern}})):  # fmt: skip
        with pytest.raises(UserError, match="pattern"):
            verify(kind, json.dumps(truth), "a")


def test_no_text_makes_a_pattern_explode() -> None:
    """Both take exponential time in an engine that backtracks."""
    for pattern in ("(a+)+b", "(x+x+)+y"):
        text = pattern[1] * 19_000
        assert outcome("regex", {"pattern": pattern}, text) == "mismatch"
        schema = {"schema": {"type": "string", "pattern": f"^{pattern}$"}}
        assert outcome("json_schema", schema, json.dumps(text)) == "mismatch"


def test_a_schema_that_branches_at_each_level_is_given_up() -> None:
    down = {"properties": {"a": {"$ref": "#"}}}
    schema = {"anyOf": [{**down, "required": ["b"]}, {**down, "required": ["c"]}]}
    nested = '{"a":' * 60 + "{}" + "}" * 60
    assert outcome("json_schema", {"schema": schema}, nested) == "limit:cpu"
    assert outcome("json_schema", {"schema": {"$ref": "#"}}, "1") == "limit:cpu"


@given(values=st.lists(st.one_of(st.integers(-3, 3), st.booleans(), st.floats(-2, 2), st.text())))
def test_uniqueness_is_that_of_json(values: list[object]) -> None:
    """Numbers by value, true apart from 1, as the specification compares them."""
    alike = any(
        one == other and isinstance(one, bool) == isinstance(other, bool)
        for index, one in enumerate(values)
        for other in values[:index]
    )
    found = outcome("json_schema", {"schema": {"uniqueItems": True}}, json.dumps(values))
    assert found == ("mismatch" if alike else "pass")


def test_every_kind_is_tested_here_or_by_what_it_runs() -> None:
    assert set(KINDS) == {*TEXT_TRUTHS, "table_program", "verilog_sim", "verilog_equiv"}

"""Which spellings meet under one key, and which never do."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knowledge_graph.names import clean_surface, is_identifier, norm_key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Clock Generators", "clock generator"),
        ("low-power mode", "Low power mode"),
        ("batteries", "Battery"),
        ("UARTs", "UART"),
        ("“gate oxide”", "gate  oxide"),
        ("the bus's", "the bus"),
    ],
)
def test_spellings_of_words_meet(one: str, other: str) -> None:
    assert norm_key(one) == norm_key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("aes64ds", "aes64es"),
        ("UART0_TX", "uart0_tx"),
        ("c.add", "c.addw"),
        ("Zvkg", "Zvksg"),
        ("pmpcfg1", "pmpcfg10"),
        ("pass", "pas"),
        ("bus", "bu"),
        ("analysis", "analysi"),
        ("Sm1p11", "Sm1p12"),
    ],
)
def test_different_names_stay_apart(one: str, other: str) -> None:
    assert norm_key(one) != norm_key(other)


@pytest.mark.parametrize(
    "name", ["mcycle_h", "RV32I", "aes64ds", "0x1F80", "fence.i", "AxiStreamMaster", "csrrw", "_q"]
)
def test_code_like_tokens_are_identifiers(name: str) -> None:
    assert is_identifier(name)


@pytest.mark.parametrize(
    "word",
    ["register", "UART", "SoC", "10nm", "3.3V", "1st", "MHz", "e.g", "vs", "Interrupts", "5"],
)
def test_words_units_and_abbreviations_are_not(word: str) -> None:
    assert not is_identifier(word)


def test_riscv_names_never_merge(shared_data: Path) -> None:
    entities = json.loads((shared_data / "graph/riscv/udb_entities.json").read_text("utf-8"))
    names = {entity["name"] for entity in entities}
    by_key: dict[str, set[str]] = defaultdict(set)
    for name in names:
        by_key[norm_key(name)].add(name)
    assert len(names) > 2000
    assert [sorted(group) for group in by_key.values() if len(group) > 1] == []


@given(st.text(alphabet="abAB019_.$", min_size=1, max_size=30))
def test_identifier_keys_keep_every_character(name: str) -> None:
    cleaned = clean_surface(name)
    if is_identifier(cleaned):
        assert norm_key(name) == f"id:{cleaned}"


@given(st.text(max_size=200))
def test_any_text_has_a_stable_key(text: str) -> None:
    key = norm_key(text)
    assert norm_key(clean_surface(text)) == key

"""Settings as the programs read them: TOML, Hydra's overrides, groups of dotted names."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.external.program import nest, to_toml
from training.external.verl import hydra_value

TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
VALUES = st.one_of(
    st.booleans(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False),
    TEXTS, st.lists(TEXTS, max_size=3),
)  # fmt: skip
NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)


@given(st.dictionaries(NAMES, st.one_of(VALUES, st.dictionaries(NAMES, VALUES, max_size=3))))
def test_toml_is_read_back(settings: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(settings)) == settings


def test_dotted_names_become_groups() -> None:
    assert nest({"a.b": 1, "a.c.d": 2, "e": 3}) == {"a": {"b": 1, "c": {"d": 2}}, "e": 3}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"), (True, "true"), (1e-5, "1e-05"), (["console"], "[console]"),
        ("/data/a-b/c.parquet", "/data/a-b/c.parquet"), ("my run", "'my run'"), ("1e3", "'1e3'"),
        ("true", "'true'"), ("a=b,c", "'a=b,c'"), ("it's", r"'it\'s'"), ("${x}", "'${x}'"),
        ("back\\slash", "'back\\slash'"), ("end\\", "'end\\\\'"), ("", "''"),
        ({"a": 1}, "{a:1}"),
    ],
)  # fmt: skip
def test_hydra_reads_the_text_that_was_meant(value: Any, written: str) -> None:
    assert hydra_value(value) == written

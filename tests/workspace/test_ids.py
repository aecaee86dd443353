"""Ids: deterministic, and different parts never collide by joining."""

from __future__ import annotations

import hashlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from workspace.ids import derive_id, hash_file


@given(st.lists(st.text(), min_size=1), st.lists(st.text(), min_size=1))
def test_ids_are_equal_only_for_equal_parts(a: list[str], b: list[str]) -> None:
    assert (derive_id(*a) == derive_id(*b)) == (a == b)


def test_a_document_is_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"chip" * 100_000)
    assert hash_file(path) == hashlib.sha256(b"chip" * 100_000).hexdigest()

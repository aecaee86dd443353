"""The pieces of a corpus that must not stand on both sides of a split.

A unit is a chunk, a table or a module with a normalised text. In: the corpus tables; out:
`Unit`s in document order. Code is compared without comments and without its own module name, so
that a licence header makes no two files alike and a renamed copy is still a copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from workspace.ids import derive_id
from workspace.shards import iterate_rows

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_SPACE = re.compile(r"\s+")


class Unit(NamedTuple):
    """`content_hash` is equal for equal normalised texts."""

    doc_id: str
    unit_id: str  # chunk_id, table_id or module_id
    kind: str  # chunk | table | module
    text: str

    @property
    def content_hash(self) -> str:
        return derive_id(self.kind, self.text)


def iterate_units(corpus: Path) -> Iterator[Unit]:
    """Every chunk, then every table, then every module of a published corpus."""
    for row in iterate_rows(corpus, "chunks", ["doc_id", "chunk_id", "kind", "text"]):
        text = strip_comments(row["text"]) if row["kind"] == "code" else row["text"]
        yield Unit(row["doc_id"], row["chunk_id"], "chunk", normalise(text))
    for row in iterate_rows(corpus, "tables", ["doc_id", "table_id", "cells"]):
        text = " | ".join(cell["text"] for cell in row["cells"])
        yield Unit(row["doc_id"], row["table_id"], "table", normalise(text))
    for row in iterate_rows(corpus, "modules", ["doc_id", "module_id", "name", "source"]):
        yield Unit(
            row["doc_id"], row["module_id"], "module", normalise_module(row["source"], row["name"])
        )


def normalise(text: str) -> str:
    """Lower case, single spaces."""
    return _SPACE.sub(" ", text).strip().casefold()


def strip_comments(source: str) -> str:
    """Verilog source without its comments; a comment mark inside a string is taken as one too."""
    return _COMMENT.sub(" ", source)


def normalise_module(source: str, name: str) -> str:
    """Module source without comments, with its own name replaced by one word."""
    bare = strip_comments(source)
    return normalise(re.sub(rf"\b{re.escape(name)}\b", "thismodule", bare))

"""reStructuredText, AsciiDoc and ODT through pandoc."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from corpus.parsed import ParseOptions, Unreadable
from corpus.parsers.pandoc import FORMATS

OPTIONS = ParseOptions()


def test_rst_grid_table_with_spans(tmp_path: Path) -> None:
    path = tmp_path / "a.rst"
    path.write_text(
        "Title\n=====\n\n.. include:: /etc/passwd\n\nThe table shows all of the limits.\n\n"
        "+------+------+\n| Name | Max  |\n+======+======+\n| A    | 1    |\n+------+------+\n"
        "| wide        |\n+------+------+\n",
        encoding="utf-8",
    )
    parsed = FORMATS["rst"](path, OPTIONS)
    assert [element.category for element in parsed.elements] == ["Title", "NarrativeText", "Table"]
    table = parsed.elements[2].table
    assert table is not None
    assert (table.cells[-1].text, table.cells[-1].col_span) == ("wide", 2)
    assert not any("root:" in element.text for element in parsed.elements)


def test_asciidoc_with_comments_and_conditionals(tmp_path: Path) -> None:
    path = tmp_path / "a.adoc"
    path.write_text(
        "= Manual\n:toc:\n\n// a remark\nifdef::x[]\nThe core has two stages and no cache at all.\n"
        "endif::[]\n\n== Tables\n\n|===\n|a |b\n\n|1 |2\n|===\n//",
        encoding="utf-8",
    )
    parsed = FORMATS["adoc"](path, OPTIONS)
    categories = [element.category for element in parsed.elements]
    assert categories[-1] == "Table"
    assert "NarrativeText" in categories
    assert not any("remark" in element.text for element in parsed.elements)


def test_every_register_of_a_real_manual_is_found(shared_data: Path) -> None:
    path = shared_data / "corpus" / "semiconductor" / "ibex__cs_registers.rst"
    parsed = FORMATS["rst"](path, OPTIONS)
    table = next(element.table for element in parsed.elements if element.table)
    source = path.read_text(encoding="utf-8").split("See the :ref:`performance-counters`")[0]
    expected = re.findall(r"^\| +(0x\w{3}) +\|", source, re.MULTILINE)
    assert len(expected) == 43
    assert [cell.text for cell in table.cells if cell.text.startswith("0x")] == expected


def test_a_damaged_odt_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "a.odt"
    path.write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(Unreadable) as caught:
        FORMATS["odt"](path, OPTIONS)
    assert caught.value.reason == "corrupt"

"""Chunks of reading text."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corpus.chunks import WHOLE_FACTOR, ChunkLimits, chunk
from corpus.parsed import ParsedCell, ParsedDocument, ParsedElement, ParsedPage, ParsedTable
from corpus.rows import OUT_OF_FLOW, DocumentRows, build_rows
from corpus.schema import CHUNKS
from corpus.tokenizers import count_tokens, load_counter
from workspace.errors import UserError


def rows(*elements: ParsedElement) -> DocumentRows:
    page = ParsedPage(1, 0, 0, "")
    return build_rows("0" * 64, ParsedDocument("txt", "t", (page,), elements), size_bytes=1)


def table(n_rows: int) -> ParsedElement:
    cells = [ParsedCell(0, 0, "Name", is_header=True), ParsedCell(0, 1, "Value", is_header=True)]
    for row in range(1, n_rows):
        cells += [ParsedCell(row, 0, f"entry {row}"), ParsedCell(row, 1, str(row))]
    return ParsedElement("Table", "x", table=ParsedTable(tuple(cells), caption="Table 1: All"))


def prose(n_words: int) -> ParsedElement:
    return ParsedElement("NarrativeText", " ".join(["word"] * n_words) + ".")


ELEMENTS = st.one_of(
    st.builds(prose, st.integers(0, 60)),
    st.builds(table, st.integers(2, 40)),
    st.builds(
        lambda text, level: ParsedElement("Title", text, level=level),
        st.text("Ab ", min_size=1, max_size=9),
        st.integers(1, 4),
    ),
    st.sampled_from(["Header", "Footer", "PageNumber", "ListItem", "CodeSnippet", "Image"]).map(
        lambda category: ParsedElement(category, f"a {category} line\n" * 5, page=2)
    ),
    st.just(ParsedElement("Image", "")),
)


@given(st.lists(ELEMENTS, max_size=25), st.integers(16, 80), st.sampled_from([0, 8]))
def test_every_element_in_the_flow_is_in_its_chunks_and_no_other(
    elements: list[ParsedElement], max_tokens: int, overlap: int
) -> None:
    document = rows(*elements)
    chunks = chunk(document, ChunkLimits(max_tokens, overlap))
    held = Counter(element_id for row in chunks for element_id in row["element_ids"])
    wanted = {row["element_id"] for row in document.elements if row["category"] not in OUT_OF_FLOW}
    assert set(held) == wanted
    by_id = {row["element_id"]: row for row in document.elements}
    tables = {row["element_id"]: row["markdown"] for row in document.tables}
    for element_id, times in held.items():
        text = tables.get(element_id, by_id[element_id]["text"])
        limit = (
            max_tokens
            if by_id[element_id]["category"] not in ("Table", "CodeSnippet")
            else (WHOLE_FACTOR * max_tokens)
        )
        assert times == 1 or count_tokens("Table 1: All\n\n" + text) > limit
    assert [row["order"] for row in chunks] == list(range(len(chunks)))
    assert len({row["chunk_id"] for row in chunks}) == len(chunks)
    for row in chunks:
        assert set(row) == set(CHUNKS.names)
        assert row["tokens"] == count_tokens(row["text"])
        if row["kind"] == "text":
            assert row["tokens"] <= max_tokens
        assert row["pages"] == sorted({by_id[i]["page"] for i in row["element_ids"]})


def test_a_first_level_heading_starts_a_chunk_and_a_small_subsection_joins() -> None:
    title = [ParsedElement("Title", name, level=level) for name, level in
             (("One", 1), ("One a", 2), ("Two", 1))]  # fmt: skip
    document = rows(title[0], prose(5), title[1], prose(5), title[2], prose(5))
    assert [
        (row["section_path"], len(row["element_ids"])) for row in chunk(document, ChunkLimits(100))
    ] == [
        (["One"], 4),
        (["Two"], 2),
    ]
    assert [row["section_path"] for row in chunk(document, ChunkLimits(20))] == [
        ["One"],
        ["One", "One a"],
        ["Two"],
    ]


def test_a_table_stays_whole_up_to_four_budgets_and_repeats_its_header_beyond() -> None:
    (whole,) = chunk(rows(table(20)), ChunkLimits(64))
    assert whole["kind"] == "table" and whole["tokens"] <= 4 * 64
    assert whole["text"].startswith(
        "Table 1: All\n\n| Name | Value |\n| --- | --- |\n| entry 1 | 1 |"
    )
    pieces = chunk(rows(table(100)), ChunkLimits(64))
    assert len(pieces) > 5
    lines = [line for piece in pieces for line in piece["text"].split("\n")]
    assert lines.count("| Name | Value |") == len(pieces)
    entries = [line for line in lines if line.startswith("| entry")]
    assert entries == [f"| entry {row} | {row} |" for row in range(1, 100)]


def test_a_long_paragraph_is_cut_at_sentences_and_loses_no_word() -> None:
    text = " ".join(f"Sentence number {n} says a little more than that." for n in range(60))
    chunks = chunk(rows(ParsedElement("NarrativeText", text)), ChunkLimits(50))
    assert " ".join(row["text"] for row in chunks) == text
    assert all(row["text"].endswith(".") and row["tokens"] <= 50 for row in chunks)


def test_a_budget_too_small_to_work_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 16"):
        ChunkLimits(3)


def test_the_token_estimate_on_known_counts() -> None:
    """Counted by SmolLM2's tokenizer: 11 and 8; digits are single tokens there too."""
    assert abs(count_tokens("The supply current settled at 45 µA.") - 11) <= 2
    assert abs(count_tokens("assign y = a & b;") - 8) <= 2


def word_level_tokenizer(folder: Path) -> Path:
    """A tokenizer.json of the `tokenizers` library: a token for each word, mark and digit run."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def test_tokens_are_counted_by_the_chosen_tokenizer(tmp_path: Path) -> None:
    count = load_counter(str(word_level_tokenizer(tmp_path / "t")))
    assert count("The supply current settled at 45 mA.") == 8  # seven words and a full stop
    text = " ".join(f"Sentence number {n} says a little more than that." for n in range(40))
    chunks = chunk(rows(ParsedElement("NarrativeText", text)), ChunkLimits(30, count=count))
    assert [row["tokens"] for row in chunks] == [30] * 13 + [10]  # ten tokens a sentence


@pytest.mark.parametrize("content", [None, "{}", "no json"])
def test_a_folder_without_a_usable_tokenizer_is_named(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(str(tmp_path))):
        load_counter(str(tmp_path))


def test_an_overlap_repeats_the_end_of_the_chunk_before_and_owns_none_of_it() -> None:
    parts = [ParsedElement("NarrativeText", f"Paragraph {n} is here. It ends here {n}.")
             for n in range(12)]  # fmt: skip
    plain = chunk(rows(*parts), ChunkLimits(40))
    lapped = chunk(rows(*parts), ChunkLimits(40, overlap_tokens=10))
    assert len(plain) < len(lapped)
    owned = [element_id for row in lapped for element_id in row["element_ids"]]
    assert len(owned) == len(set(owned)) == 12
    for before, after in pairwise(lapped):
        ending = before["text"].rsplit(". ", 1)[1]
        assert after["text"].startswith(ending) and after["tokens"] <= 40
    title = ParsedElement("Title", "New", level=1)
    assert chunk(rows(parts[0], title, parts[1]), ChunkLimits(40, 10))[1]["text"].startswith("New")


def test_long_code_is_cut_between_its_modules() -> None:
    module = "module m{n} (input a, output b);\n  assign b = ~a;\n\n  assign c = a;\nendmodule\n"
    source = "\n".join(module.format(n=n) for n in range(30))
    chunks = chunk(rows(ParsedElement("CodeSnippet", source)), ChunkLimits(80))
    assert len(chunks) > 5
    for row in chunks:
        assert row["text"].startswith("module") and row["tokens"] <= 80
        assert row["text"].count("endmodule") == row["text"].count("module m")
    assert "\n".join(row["text"] for row in chunks) == source

"""Documents, pages and pictures that come more than once are linked, and none is lost."""

from __future__ import annotations

import io
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pymupdf
import pytest
from corpus_samples import BODY, picture, text_pdf
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_runs import rows, run_ingest
from PIL import Image, ImageDraw

from corpus.duplicate_documents import Member, Sketch, candidates, group_documents
from corpus.duplicate_images import Picture, group_pictures
from corpus.duplicates import redundant_documents
from corpus.fingerprints import describe, read_text
from corpus.picture_hash import perceptual_hash

TEXT = (
    "The regulator keeps its output within the limits of the table while the input moves. At a "
    "load of {load} mA the dropout is {dropout} mV and the quiescent current {current} uA. Place "
    "the capacitor next to the pin, since a long trace adds inductance and the loop may ring. "
    "Above {limit} degrees the part shuts down and starts again when it has cooled. The enable "
    "input has a pull-down, so an open pin keeps the part off and its output discharged to ground."
)
NOMINAL = {"load": 150, "dropout": 210, "current": 35, "limit": 155}


def sketch(doc_id: str, text: str) -> tuple[Sketch, np.ndarray[Any, Any]]:
    row = describe(read_text(text))
    made = Sketch(
        doc_id,
        row["n_words"],
        row["words_hash"],
        row["text_hash"],
        np.frombuffer(row["signature"], np.uint32),
        np.frombuffer(row["plain_signature"], np.uint32),
    )
    return made, np.frombuffer(row["places"], np.uint64).reshape(-1, 2)


def group(texts: dict[str, str], threshold: float = 0.75) -> list[Member]:
    made = {doc_id: sketch(doc_id, text) for doc_id, text in texts.items()}
    return group_documents(
        [one for one, _ in made.values()], {d: places for d, (_, places) in made.items()}, threshold
    )


def kinds(texts: dict[str, str]) -> dict[str, str]:
    return {member.doc_id: member.likeness.kind for member in group(texts)}


def rows_of(workspace: Path, kind: str) -> list[dict[str, Any]]:
    return [row for row in rows(workspace, "duplicates") if row["kind"] == kind]


def test_other_numbers_make_a_variant_and_the_same_ones_a_duplicate() -> None:
    nominal = TEXT.format(**NOMINAL)
    reflowed = nominal.upper().replace(", ", " ,\n")
    assert kinds({"a": nominal, "b": reflowed}) == {"b": "near"}
    assert kinds({"a": nominal, "b": TEXT.format(**{**NOMINAL, "dropout": 340})}) == {
        "b": "variant"
    }
    edited = nominal.replace("next to the pin", "close to the pin")
    assert set(kinds({"a": nominal, "b": edited}).values()) == {"near"}
    (member,) = group({"a": nominal, "b": TEXT.format(load=1, dropout=2, current=3, limit=4)})
    assert (member.likeness.similarity, member.likeness.number_agreement) == (1.0, 0.0)


def test_spelling_of_a_number_is_no_difference() -> None:
    text = TEXT.format(**{**NOMINAL, "load": "1,500"})
    assert kinds({"a": text, "b": TEXT.format(**{**NOMINAL, "load": "1500"})}) == {"b": "near"}
    assert kinds({"a": text, "b": TEXT.format(**{**NOMINAL, "load": "-1500"})}) == {"b": "variant"}


def test_a_copy_of_a_variant_joins_the_variant() -> None:
    other = TEXT.format(load=500, dropout=90, current=12, limit=125)
    nominal = TEXT.format(**NOMINAL)
    found = {m.doc_id: m for m in group({"a": nominal, "b": other, "c": other.lower() + " End."})}
    assert found["b"].likeness.kind == "near" and found["b"].representative == "c"
    # The longest text stands for its group: c for {b, c} and for the family of both.
    assert found["a"].likeness.kind == "variant" and found["a"].representative == "c"


def test_a_variant_of_a_member_does_not_slip_into_its_group() -> None:
    """One number differs between b and c; a, longer by a few words, is near to either."""
    text = (TEXT + " ") * 8
    texts = {
        "a": text.format(**NOMINAL) + "Printed in a single volume.",
        "b": text.format(**NOMINAL) + "Printed on page 7.",
        "c": text.format(**NOMINAL) + "Printed on page 9.",
    }
    assert kinds(texts) == {"b": "near", "c": "variant"}


def test_half_of_a_table_is_no_copy_of_the_whole() -> None:
    """With masked numbers its rows say one thing over and over."""
    head = TEXT.format(**NOMINAL) + " "
    rows = [f"pin {n} drives {7 * n} mA at {n + 40} degrees" for n in range(400)]
    whole, half = head + "\n".join(rows), head + "\n".join(rows[:200])
    assert kinds({"whole": whole, "half": half}) == {}
    assert set(kinds({"whole": whole, "copy": whole.upper()}).values()) == {"near"}


def test_a_twin_is_found_among_a_thousand_forms() -> None:
    text = (TEXT + " ") * 4
    forms = {
        f"f{n:04}": text.format(load=n, dropout=7 * n, current=3 * n, limit=n + 1)
        for n in range(1000)
    }
    found = kinds({**forms, "twin": forms["f0876"].replace("trace adds", "trace gives", 1)})
    assert found.pop("f0876") == "near" or found.pop("twin") == "near"
    assert set(found.values()) == {"variant"}


def test_unlike_and_tiny_texts_are_left_alone() -> None:
    rng = random.Random(3)
    words = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("ax", "en", "ol", "ir", "um")]
    texts = {f"d{n}": " ".join(rng.choices(words, k=200)) for n in range(30)}
    assert group({**texts, "x": "See page 4", "y": "See page 4"}) == []


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(2, 12))
def test_groups_depend_on_the_set_alone(rng: random.Random, count: int) -> None:
    texts = {}
    for n in range(count):
        numbers = {name: rng.choice([1, 2]) * value for name, value in NOMINAL.items()}
        texts[f"{n:02}"] = TEXT.format(**numbers) + " again" * rng.randrange(3)
    made = {doc_id: sketch(doc_id, text) for doc_id, text in texts.items()}
    sketches = [one for one, _ in made.values()]
    needed = candidates(sketches)
    places = {d: p for d, (_, p) in made.items() if d in needed}
    found = group_documents(sketches, places, 0.75)
    rng.shuffle(sketches)
    assert group_documents(sketches, places, 0.75) == found
    assert len({member.doc_id for member in found}) == len(found)
    near = {member.doc_id for member in found if member.likeness.kind == "near"}
    assert not near & {member.representative for member in found}


def test_cell_books_of_two_corners_are_variants(shared_data: Path) -> None:
    """Two corners of one library: near-equal text, other numbers."""
    books = sorted((shared_data / "corpus/semiconductor").glob("*sg13g2_stdcell_*.pdf"))
    assert len(books) == 2
    texts = {}
    for book in books:
        with pymupdf.open(book) as document:
            texts[book.name] = "\n".join(page.get_text() for page in document)
    (member,) = group(texts)
    assert member.likeness.kind == "variant"
    assert member.likeness.similarity > 0.9 and member.likeness.number_agreement < 0.7


def drawing(seed: int, size: tuple[int, int] = (400, 300)) -> Image.Image:
    rng = random.Random(seed)
    image = Image.new("RGB", size, "white")
    pen = ImageDraw.Draw(image)
    for _ in range(12):
        x, y = rng.random() * size[0] * 0.8, rng.random() * size[1] * 0.8
        pen.rectangle((x, y, x + size[0] * 0.15, y + size[1] * 0.1), outline="black", width=4)
    return image


def encoded(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def distance(first: str, second: str) -> int:
    return (int(first, 16) ^ int(second, 16)).bit_count()


def test_a_picture_keeps_its_hash_when_it_is_stored_anew() -> None:
    image = drawing(1)
    hashes = [
        perceptual_hash(data)
        for data in (
            encoded(image),
            encoded(image, "JPEG", quality=60),
            encoded(image.resize((800, 600))),
            encoded(image.convert("RGBA")),
        )
    ]
    assert max(distance(hashes[0], other) for other in hashes) <= 15
    others = [perceptual_hash(encoded(drawing(seed))) for seed in range(2, 40)]
    assert min(distance(hashes[0], other) for other in others) > 15


def test_flat_and_broken_pictures_have_no_hash() -> None:
    assert perceptual_hash(encoded(Image.new("RGB", (50, 50), "white"))) == ""
    assert perceptual_hash(b"\x89PNG\r\n\x1a\nbroken") == ""
    flat = [Picture(name, "", 50, 50, 1) for name in "ab"]
    assert {one.representative for one in group_pictures(flat).values()} == {"a", "b"}


@settings(max_examples=30)
@given(st.lists(st.integers(0, 255), max_size=15, unique=True), st.integers(0, 2**256 - 1))
def test_close_hashes_meet(flips: list[int], bits: int) -> None:
    """No block of the hash is all zeros, so hashes that differ in few bits share a block."""
    bits |= sum(1 << (16 * block + 5) | 1 << (16 * block + 6) for block in range(16))
    other = bits
    for flip in flips:
        other ^= 1 << flip
    pictures = [Picture("a", f"{bits:064x}", 100, 80, 2), Picture("b", f"{other:064x}", 50, 40, 1)]
    found = group_pictures(pictures)
    assert found["b"].representative == "a"
    assert found["b"].similarity == pytest.approx(1 - len(flips) / 256)
    stretched = [pictures[0], pictures[1]._replace(width_px=100)]
    assert group_pictures(stretched)["b"].representative == "b"


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two editions of a note, a variant of it, a copy, shared pages, a logo on every page."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "note.md").write_text("# Regulator\n\n" + TEXT.format(**NOMINAL) + "\n")
    (folder / "note.html").write_text(
        f"<html><body><h1>Regulator</h1><p>{TEXT.format(**NOMINAL)}</p></body></html>"
    )
    (folder / "other.md").write_text(
        "# Regulator\n\n" + TEXT.format(load=500, dropout=90, current=12, limit=125) + "\n"
    )
    shutil.copy(folder / "other.md", folder / "again.md")
    common = "These terms of use stand in every manual of this maker. " + BODY * 2
    text_pdf(folder / "a.pdf", ["Only the first manual says this. " + BODY, common, "Blank page"])
    text_pdf(folder / "b.pdf", [common, "The second manual ends otherwise. " + BODY])
    with pymupdf.open() as document:
        for number in range(6):
            page = document.new_page()
            page.insert_image(pymupdf.Rect(400, 20, 520, 80), stream=encoded(drawing(7)))
            page.insert_image(pymupdf.Rect(100, 300, 340, 480), stream=picture(200, 150 + number))
            page.insert_text((72, 150), f"Slide {number} speaks of another thing: {number * 7}.")
        document.save(folder / "slides.pdf", no_new_id=True)
    run_ingest(folder / "w", folder)
    return folder / "w"


def names(workspace: Path) -> dict[str, str]:
    return {row["doc_id"]: row["name"] for row in rows(workspace, "documents")}


def test_formats_of_one_text_are_near_and_its_other_numbers_a_variant(workspace: Path) -> None:
    named = names(workspace)
    near = rows_of(workspace, "near")
    assert {named[row["doc_id"]] for row in near} == {"note.md", "note.html"}
    assert [row["is_representative"] for row in near].count(True) == 1
    variant = {named[row["doc_id"]] for row in rows_of(workspace, "variant")}
    assert "again.md" in variant and len(variant) == 2
    skipped = redundant_documents(workspace / "corpus")
    assert skipped == {row["doc_id"] for row in near if not row["is_representative"]}


def test_copies_are_listed_by_uri(workspace: Path) -> None:
    exact = rows_of(workspace, "exact")
    assert [(Path(r["uri"]).name, r["is_representative"], r["n_members"]) for r in exact] == [
        ("again.md", True, 2),
        ("other.md", False, 2),
    ]


def test_equal_pages_are_linked(workspace: Path) -> None:
    named = names(workspace)
    pages = [(named[row["doc_id"]], row["page"]) for row in rows_of(workspace, "page")]
    assert ("a.pdf", 2) in pages and ("b.pdf", 1) in pages
    assert not {("a.pdf", 1), ("b.pdf", 2)} & set(pages)


def test_a_logo_on_every_page_is_one_group(workspace: Path) -> None:
    groups: dict[str, list[int]] = {}
    for row in rows_of(workspace, "image"):
        groups.setdefault(row["group_id"], []).append(row["page"])
        assert row["n_members"] == len(groups[row["group_id"]]) or row["n_members"] > 1
    assert [1, 2, 3, 4, 5, 6] in [sorted(pages) for pages in groups.values()]


def test_every_row_points_to_something(workspace: Path) -> None:
    documents = names(workspace)
    pages = {(row["doc_id"], row["page"]) for row in rows(workspace, "pages")}
    images = {row["image_id"] for row in rows(workspace, "images")}
    found = rows(workspace, "duplicates")
    sizes: dict[str, int] = {}
    for row in found:
        sizes[row["group_id"]] = sizes.get(row["group_id"], 0) + 1
        assert row["doc_id"] in documents
        assert not row["page"] or (row["doc_id"], row["page"]) in pages
        assert not row["image_id"] or row["image_id"] in images
    assert all(row["n_members"] == sizes[row["group_id"]] for row in found)
    leaders = {row["group_id"] for row in found if row["is_representative"]}
    assert len(leaders) == sum(row["is_representative"] for row in found) == len(sizes)

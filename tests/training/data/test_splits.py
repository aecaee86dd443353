"""Splits: content never stands on two sides, whatever the documents and their order."""

from __future__ import annotations

import random
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from training.data.splits import TEST, TRAIN, VALIDATION, Splits, SplitSettings, make_splits
from training.data.units import Unit, normalise_module


def prose(seed: str, n: int = 60) -> str:
    rng = random.Random(seed)
    return " ".join(f"word{rng.randrange(10_000)}" for _ in range(n))


def unit(doc: str, index: int, text: str, kind: str = "chunk") -> Unit:
    return Unit(doc, f"{doc}-{kind}-{index}", kind, text)


def corpus(sizes: dict[str, int], kind: str = "chunk") -> list[Unit]:
    """Documents with so many distinct units each."""
    return [
        unit(doc, index, prose(f"{doc}/{index}"), kind)
        for doc, size in sizes.items()
        for index in range(size)
    ]


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[str], list[Unit]]:
    """Up to 14 documents of up to 5 units, drawn from a small pool of texts so that some repeat."""
    documents = [f"doc{i}" for i in range(draw(st.integers(1, 14)))]
    units = []
    for doc in documents:
        for index, text in enumerate(draw(st.lists(st.integers(0, 40), max_size=5))):
            kind = draw(st.sampled_from(["chunk", "table", "module"]))
            length = 6 if text % 10 == 0 else 60  # too short to link
            units.append(unit(doc, index, prose(str(text), length), kind))
    return documents, units


@settings(max_examples=60, deadline=None)
@given(corpora(), st.integers(0, 5), st.randoms())
def test_equal_content_stays_on_one_side_in_any_order(
    made: tuple[list[str], list[Unit]], seed: int, rng: random.Random
) -> None:
    documents, units = made
    config = SplitSettings(seed=seed, boilerplate_documents=6)
    splits = make_splits(documents, units, config)
    sides: dict[str, set[str]] = defaultdict(set)
    for item in units:
        if item.unit_id not in splits.shared:
            sides[item.content_hash].add(splits.split[item.doc_id])
    assert all(len(side) == 1 for side in sides.values())
    assert set(splits.split) == set(documents)
    by_group: dict[str, set[str]] = defaultdict(set)
    for doc, group in splits.group.items():
        by_group[group].add(splits.split[doc])
    assert all(len(side) == 1 for side in by_group.values())

    rng.shuffle(documents)
    rng.shuffle(units)
    assert make_splits(documents, units, config) == splits


def near_copy(text: str) -> str:
    words = text.split()
    words[30] = "0815"  # a number differs: still a near copy
    return " ".join(words)


def test_a_planted_near_copy_lands_with_its_original() -> None:
    for seed in range(12):
        units = corpus({f"doc{i}": 4 for i in range(12)})
        longer = [item._replace(text=f"{item.text} {prose(item.unit_id, 200)}") for item in units]
        copy = unit("doc11", 99, near_copy(longer[0].text))
        splits = make_splits({u.doc_id for u in units}, [*longer, copy], SplitSettings(seed=seed))
        assert splits.split["doc0"] == splits.split["doc11"]
        assert splits.group["doc0"] == splits.group["doc11"]
        assert splits.links["near"] == 1


def test_a_renamed_module_is_the_same_module() -> None:
    source = "module {n}(input a, output y); // {n} by me\n assign y = ~a & {{4{{a}}}}; endmodule"
    assert normalise_module(source.format(n="inv"), "inv") == normalise_module(
        source.format(n="other").replace("by me", "by you"), "other"
    )


def test_boilerplate_links_nothing_and_is_never_used() -> None:
    units = corpus({f"doc{i}": 4 for i in range(30)})
    licence = [unit(f"doc{i}", 50, prose("licence")) for i in range(30)]
    splits = make_splits({u.doc_id for u in units}, [*units, *licence], SplitSettings())
    assert splits.links["groups"] == 30
    assert {item.unit_id for item in licence} <= splits.shared
    assert not {item.unit_id for item in units} & splits.shared


def share(splits: Splits, units: list[Unit], side: str) -> float:
    return sum(splits.split[item.doc_id] == side for item in units) / len(units)


def test_every_size_of_corpus_has_training_and_from_two_groups_a_test() -> None:
    for n in range(1, 12):
        units = corpus({f"doc{i}": 3 for i in range(n)})
        splits = make_splits({u.doc_id for u in units}, units, SplitSettings())
        assert TRAIN in splits.split.values()
        assert (TEST in splits.split.values()) == (n >= 2)


def test_the_share_of_many_documents_is_as_asked() -> None:
    units = corpus({f"doc{i}": 1 + i % 7 for i in range(120)})
    splits = make_splits({u.doc_id for u in units}, units, SplitSettings())
    assert 0.12 < share(splits, units, TEST) <= 0.15
    assert 0.03 < share(splits, units, VALIDATION) <= 0.05


def test_one_huge_document_is_for_training_and_the_test_still_has_questions() -> None:
    for seed in range(8):
        sizes = {"huge": 900, "large": 500} | {f"small{i}": 12 for i in range(20)}
        units = corpus(sizes)
        splits = make_splits(sizes, units, SplitSettings(seed=seed))
        assert splits.split["huge"] == splits.split["large"] == TRAIN
        assert 0.1 < share(splits, units, TEST) <= 0.15


def test_a_large_document_is_held_out_when_the_small_ones_make_no_test() -> None:
    sizes = {"huge": 900, "large": 500, "note": 2, "memo": 3}
    units = corpus(sizes)
    splits = make_splits(sizes, units, SplitSettings())
    assert splits.split["huge"] == TRAIN
    assert splits.split["large"] == TEST
    assert share(splits, units, TRAIN) >= 0.5


def test_code_and_prose_are_each_held_out_in_part() -> None:
    units = corpus({f"book{i}": 8 for i in range(10)})
    units += corpus({f"core{i}": 2 for i in range(30)}, kind="module")
    splits = make_splits({u.doc_id for u in units}, units, SplitSettings())
    for kind in ("book", "core"):
        sides = {side for doc, side in splits.split.items() if doc.startswith(kind)}
        assert {TRAIN, TEST} <= sides


def test_documents_without_content_are_not_the_test() -> None:
    units = corpus({f"doc{i}": 5 for i in range(4)})
    empty = [f"empty{i}" for i in range(50)]
    splits = make_splits([*empty, *{u.doc_id for u in units}], units, SplitSettings())
    assert all(splits.split[doc] == TRAIN for doc in empty)
    assert TEST in splits.split.values()

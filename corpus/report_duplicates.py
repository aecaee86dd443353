"""The report's section on what the corpus holds more than once: a line for each group of texts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from workspace.shards import Row

MAX_GROUPS: Final = 200
_TITLES: Final[Mapping[str, str]] = {
    "exact": "the same bytes in several places",
    "near": "the same text in other formats or editions",
    "variant": "the same words with other numbers",
    "page": "equal pages",
    "image": "one picture in several places",
}


def duplicate_lines(
    duplicates: Iterable[Row], names: Mapping[str, str], code: Callable[[str], str]
) -> Iterator[str]:
    """`names` gives a document's uri; `code` makes text from outside safe to show."""
    groups: Counter[str] = Counter()
    members: Counter[str] = Counter()
    documents: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in duplicates:
        members[row["kind"]] += 1
        groups[row["kind"]] += row["is_representative"]
        if row["kind"] in ("near", "variant") and len(documents) <= MAX_GROUPS:
            documents[row["kind"], row["group_id"]].append(row)
    if not groups:
        yield "Nothing comes twice."
        return
    yield "| kind | groups | members | what |"
    yield "|---|---:|---:|---|"
    for kind, title in _TITLES.items():
        if groups[kind]:
            yield f"| {kind} | {groups[kind]} | {members[kind]} | {title} |"
    if documents:
        yield ""
        yield "| kind | stands for the others | like it (words / numbers that agree) |"
        yield "|---|---|---|"
    for (kind, _), rows in list(documents.items())[:MAX_GROUPS]:
        first = next(row["doc_id"] for row in rows if row["is_representative"])
        others = [
            f"{code(names.get(row['doc_id'], ''))} {row['similarity']:.0%} / "
            f"{row['number_agreement']:.0%}"
            for row in rows
            if not row["is_representative"]
        ]
        yield f"| {kind} | {code(names.get(first, ''))} | {', '.join(others)} |"
    yield ""
    yield "All of it is in the corpus; the `duplicates` table links it."

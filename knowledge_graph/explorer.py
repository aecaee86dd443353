"""The explorer: one HTML file that shows the graph, offline, with the evidence of each fact.

The page holds the highest-ranked entities and the relations among them (a browser cannot hold
eleven million); it says how many of how many are shown. All texts are data: embedded as escaped
JSON and set by `textContent`, because documents are not to be trusted.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from knowledge_graph.layout import place_circles
from workspace import publish
from workspace.page_style import page_style
from workspace.script_data import embed_json
from workspace.shards import Row

MAX_COMMUNITIES: Final = 140
MAX_RELATIONS_PER_ENTITY: Final = 40
MAX_FACTS_PER_ENTITY: Final = 60
MAX_QUOTES: Final = 2
MAX_QUOTE_CHARS: Final = 320
MAX_PLACES: Final = 4
_TEMPLATES: Final = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class GraphTables:
    """What the page is made from: rows of the published tables, and document names."""

    entities: Sequence[Row]
    relations: Sequence[Row]
    communities: Sequence[Row]
    document_names: Mapping[str, str]
    places: Mapping[str, Sequence[Row]] = field(default_factory=dict)


def shown_entities(entities: Sequence[Row], limit: int) -> list[Row]:
    """The entities that the page holds: highest ranked, then most mentioned."""
    return sorted(
        entities, key=lambda row: (-row["pagerank"], -row["n_mentions"], row["entity_id"])
    )[:limit]


def write_explorer(target: Path, tables: GraphTables, *, limit: int, seed: int) -> None:
    """Publish the page at `target` with the `limit` highest-ranked entities."""
    from jinja2 import Environment, FileSystemLoader
    from markupsafe import Markup

    data = _Page(tables, limit, seed).data()
    environment = Environment(loader=FileSystemLoader(_TEMPLATES), autoescape=True)
    own_style = (_TEMPLATES / "explorer.css").read_text(encoding="utf-8")
    page = environment.get_template("explorer.html.j2").render(
        style=Markup(page_style() + own_style),  # noqa: S704
        script=Markup((_TEMPLATES / "explorer.js").read_text(encoding="utf-8")),  # noqa: S704
        data=Markup(embed_json(data)),  # noqa: S704  escaped by embed_json
    )
    publish.write_text(target, page)


class _Page:
    """Selects and numbers what is shown; the page's script refers to things by number."""

    def __init__(self, tables: GraphTables, limit: int, seed: int) -> None:
        self.tables = tables
        self.seed = seed
        self.shown = shown_entities(tables.entities, limit)
        self.index = {row["entity_id"]: n for n, row in enumerate(self.shown)}
        self.documents: dict[str, int] = {}

    def data(self) -> dict[str, Any]:
        communities = self._communities()
        relations, facts = self._relations()
        entities = [self._entity(row, facts[n]) for n, row in enumerate(self.shown)]
        names = self.tables.document_names
        return {
            "totals": {
                "entities": len(self.tables.entities),
                "relations": len(self.tables.relations),
                "communities": sum(not row["parent_id"] for row in self.tables.communities),
                "documents": len(names),
            },
            "entities": entities,
            "relations": relations,
            "communities": communities,
            "documents": [names.get(doc_id, doc_id[:12]) for doc_id in self.documents],
        }

    def _entity(self, row: Row, facts: list[list[Any]]) -> dict[str, Any]:
        places = self.tables.places.get(row["entity_id"], ())
        return {
            "name": row["name"],
            "type": row["type"],
            "aliases": list(row["aliases"]),
            "mentions": row["n_mentions"],
            "docs": row["n_docs"],
            "degree": row["degree"],
            "rank": row["pagerank"],
            "facts": facts,
            "places": [[self._document(p["doc_id"]), p["page"], p["surface"]] for p in places],
        }

    def _relations(self) -> tuple[list[list[Any]], defaultdict[int, list[list[Any]]]]:
        """Relations among shown entities, stated and strong first; other statements by head."""
        among: list[list[Any]] = []
        facts: defaultdict[int, list[list[Any]]] = defaultdict(list)
        counts: Counter[int] = Counter()
        names = {row["entity_id"]: row["name"] for row in self.tables.entities}
        for row in sorted(self.tables.relations, key=_importance):
            head, tail = self.index.get(row["head_id"]), self.index.get(row["tail_id"])
            if head is None:
                continue
            if tail is None:
                value = row["value"] or names.get(row["tail_id"], "")
                if row["kind"] == "asserted" and len(facts[head]) < MAX_FACTS_PER_ENTITY:
                    facts[head].append([row["predicate"], value, row["unit"], self._quotes(row)])
            elif min(counts[head], counts[tail]) < MAX_RELATIONS_PER_ENTITY:
                counts.update((head, tail))
                stated = int(row["kind"] == "asserted")
                strength = round(float(row["weight"]), 3)
                among.append([head, row["predicate"], tail, stated, strength, self._quotes(row)])
        return among, facts

    def _quotes(self, row: Row) -> list[list[Any]]:
        return [
            [
                self._document(item["doc_id"]),
                item["page"],
                item["text"][:MAX_QUOTE_CHARS],
                "table" if item["table_id"] else row["source"],
            ]
            for item in row["evidence"][:MAX_QUOTES]
        ]

    def _document(self, doc_id: str) -> int:
        return self.documents.setdefault(doc_id, len(self.documents))

    def _communities(self) -> list[dict[str, Any]]:
        """Shown communities with their shown members; the coarsest ones have a place."""
        rows = [
            (row, [self.index[m] for m in row["entity_ids"] if m in self.index])
            for row in self.tables.communities
        ]
        rows = [(row, members) for row, members in rows if len(members) > 1]
        tops = sorted(
            (item for item in rows if not item[0]["parent_id"]),
            key=lambda item: (-item[0]["size"], item[0]["community_id"]),
        )[:MAX_COMMUNITIES]
        kept = {row["community_id"] for row, _ in tops}
        shown = list(tops)
        for item in rows:
            if item[0]["parent_id"] in kept:
                kept.add(item[0]["community_id"])
                shown.append(item)
        number = {row["community_id"]: n for n, (row, _) in enumerate(shown)}
        circles = place_circles(
            [float(row["size"]) for row, _ in tops], self._links([m for _, m in tops]), self.seed
        )
        places = dict(enumerate(circles))
        return [
            {
                "label": row["label"],
                "summary": row["summary"],
                "size": row["size"],
                "level": row["level"],
                "parent": number.get(row["parent_id"], -1),
                "members": members,
                "circle": list(places[n]) if n in places else None,
            }
            for n, (row, members) in enumerate(shown)
        ]

    def _links(self, groups: Iterable[Sequence[int]]) -> dict[tuple[int, int], float]:
        """How strongly pairs of groups are joined by relations of their shown members."""
        home = {member: n for n, members in enumerate(groups) for member in members}
        links: defaultdict[tuple[int, int], float] = defaultdict(float)
        for row in self.tables.relations:
            a = home.get(self.index.get(row["head_id"], -1))
            b = home.get(self.index.get(row["tail_id"], -1))
            if a is not None and b is not None and a != b:
                links[(min(a, b), max(a, b))] += 1.0
        return dict(links)


def _importance(row: Row) -> tuple[str | float, ...]:
    return (row["kind"], -row["weight"], row["predicate"], row["relation_id"])

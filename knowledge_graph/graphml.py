"""The graph as GraphML, for Gephi, yEd, Cytoscape or `networkx.read_graphml`.

A node for each entity (name, type, counts, rank, finest community, its literal facts as text) and
an edge for each relation between entities. Written as a stream: memory does not grow with edges.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO
from xml.sax.saxutils import escape, quoteattr

from workspace import publish
from workspace.shards import Row

_NODE_KEYS: Final = {
    "name": "string",
    "type": "string",
    "n_mentions": "int",
    "n_docs": "int",
    "pagerank": "double",
    "community": "string",
    "facts": "string",
}
_EDGE_KEYS: Final = {
    "predicate": "string",
    "kind": "string",
    "source": "string",
    "weight": "double",
    "n_docs": "int",
}
# XML 1.0 has no way to write these.
_ILLEGAL: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
MAX_FACTS: Final = 20


def write(
    target: Path,
    entities: Sequence[Row],
    relations: Sequence[Row],
    communities: Iterable[Row],
) -> None:
    """Publish the file at `target`."""
    homes = finest_community(communities)
    facts = _facts(relations)
    with publish.atomic_path(target) as path, path.open("w", encoding="utf-8") as out:
        _head(out)
        for row in entities:
            identity = row["entity_id"]
            extra = {"community": homes.get(identity, ""), "facts": facts.get(identity, "")}
            out.write(f"<node id={quoteattr(identity)}>")
            _data(out, "n_", _NODE_KEYS, {**row, **extra})
            out.write("</node>\n")
        for row in relations:
            if row["tail_id"]:
                ends = f"source={quoteattr(row['head_id'])} target={quoteattr(row['tail_id'])}"
                out.write(f"<edge id={quoteattr(row['relation_id'])} {ends}>")
                _data(out, "e_", _EDGE_KEYS, row)
                out.write("</edge>\n")
        out.write("</graph>\n</graphml>\n")


def finest_community(communities: Iterable[Row]) -> dict[str, str]:
    """Entity -> the label of its community at the deepest level."""
    homes: dict[str, str] = {}
    for row in sorted(communities, key=lambda row: int(row["level"])):
        homes.update(dict.fromkeys(row["entity_ids"], row["label"]))
    return homes


def _facts(relations: Iterable[Row]) -> dict[str, str]:
    lines: dict[str, list[str]] = defaultdict(list)
    for row in relations:
        if not row["tail_id"] and len(lines[row["head_id"]]) < MAX_FACTS:
            lines[row["head_id"]].append(
                f"{row['predicate']} = {row['value']} {row['unit']}".strip()
            )
    return {identity: "\n".join(sorted(texts)) for identity, texts in lines.items()}


def _head(out: TextIO) -> None:
    out.write('<?xml version="1.0" encoding="UTF-8"?>\n')
    out.write('<graphml xmlns="http://graphml.graphdrawing.org/xmlns">\n')
    for scope, prefix, keys in (("node", "n_", _NODE_KEYS), ("edge", "e_", _EDGE_KEYS)):
        for name, kind in keys.items():
            out.write(
                f'<key id="{prefix}{name}" for="{scope}" attr.name="{name}" attr.type="{kind}"/>\n'
            )
    out.write('<graph edgedefault="directed">\n')


def _data(out: TextIO, prefix: str, keys: Iterable[str], values: Mapping[str, object]) -> None:
    for key in keys:
        text = escape(_ILLEGAL.sub(" ", str(values[key])))
        out.write(f'<data key="{prefix}{key}">{text}</data>')

"""RTL modules -> structure: ports, parameters, instances, as entities and facts.

Rows of the corpus table `modules` in. A module is an entity by its name. A port or parameter is
an entity `module.port` (names such as `clk` stand in nearly every module, and a fact about one is
no fact about the others) with the bare name as its surface.

    serv_top  has_port       serv_top.clk      serv_top.clk  direction  input
    serv_top  has_parameter  serv_top.WITH_CSR serv_top.WITH_CSR  default_value  1
    serv_top  instantiates   serv_alu          serv_top.o_adr  width  32  (bits)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from knowledge_graph.candidates import NOT_FROM_TEXT, Extraction, Mention, Relation
from knowledge_graph.names import identifier_key

MAX_LINE_CHARS: Final = 300
MAX_SOURCE_LINES: Final = 40
_WORD: Final = re.compile(r"[A-Za-z_$][\w$]*")


def extract_module(row: Mapping[str, Any], page: int, bbox_pt: list[float] | None) -> Extraction:
    """Structure of one module; page and box are those of the element with its source."""
    return _Module(row, page, bbox_pt).extract()


class _Module:
    """Builds the rows of one module."""

    def __init__(self, row: Mapping[str, Any], page: int, bbox_pt: list[float] | None) -> None:
        self.row = row
        self.page = page
        self.bbox_pt = bbox_pt
        self.name = str(row["name"])
        self.key = identifier_key(self.name)
        self.lines = str(row["source"] or "").splitlines()
        self.lines_of = _index_words(self.lines)
        self.found = Extraction()

    def extract(self) -> Extraction:
        if not self.name:
            self.found.rejects["module_without_name"] += 1
            return self.found
        self._mention("module", self.key, self.name, self.name, 0)
        for number, port in enumerate(self.row["ports"] or (), start=1):
            self._port(number, port)
        for number, parameter in enumerate(self.row["parameters"] or (), start=1):
            self._parameter(number, parameter)
        for number, instance in enumerate(self.row["instances"] or (), start=1):
            self._instance(number, instance)
        return self.found

    def _port(self, number: int, port: Mapping[str, Any]) -> None:
        key = self._member("port", number, port["name"])
        line = self._source_line(port["name"], port["line"])
        self._relation(self.key, "has_port", line, tail_key=key)
        if port["direction"]:
            self._relation(key, "direction", line, value=port["direction"])
        if port["width"]:
            self._relation(key, "width", line, value=str(port["width"]), unit="bits")
        if port["comment"]:
            self._relation(key, "comment", line, value=_flat(port["comment"]))

    def _parameter(self, number: int, parameter: Mapping[str, Any]) -> None:
        if parameter["is_local"]:
            self.found.rejects["local_parameter"] += 1
            return
        key = self._member("parameter", number, parameter["name"])
        line = self._source_line(parameter["name"], parameter["line"])
        self._relation(self.key, "has_parameter", line, tail_key=key)
        if parameter["value"]:
            self._relation(key, "default_value", line, value=_flat(parameter["value"]))

    def _instance(self, number: int, instance: Mapping[str, Any]) -> None:
        key = identifier_key(instance["module"])
        self._mention("instance", key, instance["module"], instance["module"], number)
        line = self._source_line(instance["module"], instance["line"], until=instance["name"])
        self._relation(self.key, "instantiates", line, tail_key=key)

    def _member(self, kind: str, number: int, name: str) -> str:
        scoped = f"{self.name}.{name}"
        key = identifier_key(scoped)
        self._mention(kind, key, scoped, name, number)
        return key

    def _mention(self, kind: str, key: str, name: str, surface: str, slot: int) -> None:
        self.found.mentions.append(
            Mention(
                self.row["doc_id"],
                self.page,
                self.row["order"],
                self.row["element_id"],
                NOT_FROM_TEXT,
                NOT_FROM_TEXT,
                NOT_FROM_TEXT,
                kind,
                key,
                name,
                surface,
                slot,
                self.bbox_pt,
            )
        )

    def _relation(
        self,
        head: str,
        predicate: str,
        line: str,
        *,
        tail_key: str = "",
        value: str = "",
        unit: str = "",
    ) -> None:
        self.found.relations.append(
            Relation(
                self.row["doc_id"],
                self.page,
                self.row["order"],
                self.row["element_id"],
                "",
                head,
                predicate,
                tail_key,
                value,
                unit,
                "rtl",
                line,
                self.bbox_pt,
            )
        )

    def _source_line(self, name: str, line: int, until: str = "") -> str:
        """The source that shows `name`: the line stated if it does, else the first that does.

        With `until`, everything from there to the line with that word: an instance's name may
        stand several lines below its module's.
        """
        shown = self.lines_of.get(name, [])
        if not shown:
            return f"module {self.name}: {name}"
        stated = line - int(self.row["line_start"] or 1)
        first = stated if stated in shown else shown[0]
        last = first
        if until:
            after = [index for index in self.lines_of.get(until, ()) if index >= first]
            last = after[0] if after and after[0] - first <= MAX_SOURCE_LINES else first
        return _flat(" ".join(self.lines[first : last + 1]))


def _index_words(lines: list[str]) -> dict[str, list[int]]:
    """Word -> the lines that it stands in."""
    index: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        for word in dict.fromkeys(_WORD.findall(line)):
            index.setdefault(word, []).append(number)
    return index


def _flat(text: str) -> str:
    return " ".join(text.split())[:MAX_LINE_CHARS]

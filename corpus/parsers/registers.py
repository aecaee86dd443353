"""Register lists: CMSIS-SVD and IP-XACT (XML), OpenTitan's regtool (Hjson, JSON), SystemRDL.

In: one file. Out: `register_map`'s elements. Hjson needs the package hjson, SystemRDL
systemrdl-compiler (`pip install "dsm-pipeline[registers]"`). A JSON or Hjson file of another schema
is read as plain text. SystemRDL that includes other files is not read, and its Perl preprocessor
is not run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers import characters, documents
from corpus.parsers.register_map import MAX_REGISTERS, Block, Field, Register, build, number
from corpus.parsers.register_xml import parse_ipxact, parse_svd
from corpus.parsers.text import read_paragraphs
from corpus.parsers.unstructured_setup import version

_CURE: Final = 'pip install "dsm-pipeline[registers]"'
_PERL: Final = re.compile(r"<%")
_INCLUDE: Final = re.compile(r"^\s*`include\b", re.MULTILINE)


def parse_regtool(path: Path, options: ParseOptions) -> ParsedDocument:
    """OpenTitan's register description; another schema is plain text. Raises `Unreadable`."""
    text = characters.read_text(path)
    value = _read_hjson(text)
    if not isinstance(value, dict) or not isinstance(value.get("registers"), (list, dict)):
        return documents.build("txt", version("unstructured"), read_paragraphs(text))
    width = number(_str(value.get("regwidth"))) or 32
    parameters = {
        _str(item.get("name")): number(_str(item.get("default")))
        for item in _dicts(value.get("param_list"))
    }
    given = value["registers"]
    interfaces = given.items() if isinstance(given, dict) else [("", given)]
    name = _str(value.get("name"))
    blocks = [
        Block(
            f"{name} {label}".strip(),
            "",
            tuple(_Regtool(width, parameters).registers(value if first else {}, items)),
        )
        for first, (label, items) in ((n == 0, pair) for n, pair in enumerate(interfaces))
    ]
    text = _str(value.get("one_paragraph_desc") or value.get("human_name"))
    return build("registers", "regtool", name, text, blocks)


def _read_hjson(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        import hjson
    except ImportError as error:
        raise Unreadable("needs_hjson", f"Hjson needs the package hjson: {_CURE}") from error
    try:
        return hjson.loads(text)
    except (ValueError, RecursionError) as error:
        raise Unreadable("syntax", f"not valid Hjson: {error}", stage="parse") from error


class _Regtool:
    """Places registers one after the other, as reggen does."""

    def __init__(self, width: int, parameters: Mapping[str, int | None]) -> None:
        self._width = width
        self._bytes = width // 8
        self._parameters = parameters
        self._offset = 0
        self._taken = 0

    def registers(self, block: Mapping[str, Any], items: Any) -> Iterator[Register]:
        """The implied interrupt and alert registers, then those listed."""
        yield from self._implied(block)
        for item in _dicts(items):
            yield from self._item(item)

    def _implied(self, block: Mapping[str, Any]) -> Iterator[Register]:
        interrupts = _dicts(block.get("interrupt_list"))
        if interrupts and _str(block.get("no_auto_intr_regs")) != "true":
            for name, access in (("STATE", "rw1c"), ("ENABLE", "rw"), ("TEST", "wo")):
                yield self._signals(f"INTR_{name}", access, interrupts)
        alerts = _dicts(block.get("alert_list"))
        if alerts and _str(block.get("no_auto_alert_regs")) != "true":
            yield self._signals("ALERT_TEST", "wo", alerts)

    def _signals(self, name: str, access: str, signals: list[dict[str, Any]]) -> Register:
        fields = []
        lsb = 0
        for signal in signals:
            bits = number(_str(signal.get("width"))) or 1
            fields.append(
                Field(_str(signal.get("name")), lsb, lsb + bits - 1, access, 0,
                      _str(signal.get("desc")))
            )  # fmt: skip
            lsb += bits
        said = {"INTR": "Interrupt", "ALER": "Alert"}[name[:4]]
        text = f"{said} {name.split('_')[1].lower()} register"
        return self._place(Register(name, None, self._width, access, 0, text, tuple(fields)))

    def _item(self, item: dict[str, Any]) -> Iterator[Register]:
        if "skipto" in item:
            self._offset = number(_str(item["skipto"])) or self._offset
        elif "reserved" in item:
            self._offset += self._bytes * (number(_str(item["reserved"])) or 0)
        elif isinstance(item.get("multireg"), dict):
            yield from self._multireg(item["multireg"])
        elif isinstance(item.get("window"), dict):
            yield self._window(item["window"])
        elif "sameaddr" in item:
            start = self._offset
            for same in _dicts(item["sameaddr"]):
                self._offset = start
                yield from self._item(same)
        elif "name" in item:
            yield self._place(self._register(item, _str(item["name"])))

    def _place(self, register: Register, span: int = 0) -> Register:
        self._taken += 1
        if self._taken > MAX_REGISTERS:
            detail = f"more than {MAX_REGISTERS} registers"
            raise Unreadable("too_large", detail, stage="parse")
        placed = Register(
            register.name, self._offset, register.bits, register.access, register.reset,
            register.description, register.fields,
        )  # fmt: skip
        self._offset += span or self._bytes
        return placed

    def _register(self, item: dict[str, Any], name: str, copies: range = range(1)) -> Register:
        """`copies` numbers the repetitions of the fields that this register holds."""
        access = _str(item.get("swaccess"))
        listed = _dicts(item.get("fields"))
        stride = max((_bits(part)[1] + 1 for part in listed), default=self._width)
        fields = []
        for place, copy in enumerate(copies):
            for part in listed:
                lsb, msb = (bit + place * stride for bit in _bits(part))
                own = _str(part.get("name")) or name
                reset = number(_str(part.get("resval", "0")))
                fields.append(
                    Field(f"{own}_{copy}" if copies != range(1) else own, lsb, msb,
                          _str(part.get("swaccess")) or access, reset, _str(part.get("desc")))
                )  # fmt: skip
        known = all(part.reset is not None for part in fields)
        reset = sum((part.reset or 0) << part.lsb for part in fields) if known else None
        text = _str(item.get("desc"))
        return Register(name, None, self._width, access, reset, text, tuple(fields))

    def _multireg(self, item: dict[str, Any]) -> Iterator[Register]:
        named = _str(item.get("count"))
        count = number(named) or self._parameters.get(named) or 1
        count = min(count, MAX_REGISTERS)
        listed = _dicts(item.get("fields"))
        bits = max((_bits(part)[1] + 1 for part in listed), default=self._width)
        compact = _str(item.get("compact", "true")) not in ("false", "0") and len(listed) == 1
        each = max(1, self._width // bits) if compact else 1
        total = math.ceil(count / each)
        for index in range(total):
            name = _str(item.get("name")) + (f"_{index}" if total > 1 else "")
            copies = range(index * each, min(count, (index + 1) * each))
            yield self._place(self._register(item, name, copies))

    def _window(self, item: dict[str, Any]) -> Register:
        words = number(_str(item.get("items"))) or self._parameters.get(_str(item.get("items")))
        span = self._bytes * (words or 1)
        align = 1 << (span - 1).bit_length()  # up to the next power of two, as reggen does
        self._offset = -(-self._offset // align) * align
        name, access = _str(item.get("name")), _str(item.get("swaccess"))
        text = f"{_str(item.get('desc'))} Window of {words or 1} words."
        return self._place(Register(name, None, self._width, access, None, text), span)


def _bits(part: Mapping[str, Any]) -> tuple[int, int]:
    msb, _, lsb = _str(part.get("bits")).partition(":")
    high = number(msb)
    low = number(lsb) if lsb else high
    if high is None or low is None or not 0 <= low <= high < 4096:
        raise Unreadable("syntax", f"field bits {part.get('bits')!r}", stage="parse")
    return low, high


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _str(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None or isinstance(value, (dict, list)) else str(value)


def parse_systemrdl(path: Path, options: ParseOptions) -> ParsedDocument:
    """A self-contained SystemRDL 2.0 file; its last address map is elaborated."""
    text = characters.read_text(path)
    if _PERL.search(text) or _INCLUDE.search(text):
        detail = "it includes other files or has Perl in it: preprocess it first"
        raise Unreadable("unsupported", detail, stage="parse")
    try:
        import systemrdl
        from systemrdl.messages import MessagePrinter
    except ImportError as error:
        detail = f"SystemRDL needs systemrdl-compiler: {_CURE}"
        raise Unreadable("needs_systemrdl", detail) from error
    said: list[str] = []

    class Collect(MessagePrinter):  # type: ignore[misc]
        def print_message(self, severity: Any, text: str, src_ref: Any) -> None:
            said.append(text)

    compiler = systemrdl.RDLCompiler(message_printer=Collect())
    try:
        compiler.compile_file(str(path))
        top = compiler.elaborate().top
    except systemrdl.RDLCompileError as error:
        detail = "; ".join(said)[:500] or str(error)
        raise Unreadable("syntax", f"SystemRDL: {detail}", stage="parse") from error
    registers = []
    for node in top.descendants(unroll=True):
        if isinstance(node, systemrdl.node.RegNode):
            registers.append(_rdl_register(node, top))
            if len(registers) > MAX_REGISTERS:
                break
    name = top.get_property("name") or top.inst_name
    block = Block(top.inst_name, _str(top.get_property("desc")), tuple(registers))
    return build("systemrdl", version("systemrdl-compiler"), name, "", [block])


def _rdl_register(node: Any, top: Any) -> Register:
    fields = tuple(
        Field(
            item.inst_name,
            item.low,
            item.high,
            item.get_property("sw").name,
            _constant(item.get_property("reset")),
            _str(item.get_property("desc")),
        )
        for item in node.fields()
    )
    known = bool(fields) and all(item.reset is not None for item in fields)
    reset = sum((item.reset or 0) << item.lsb for item in fields) if known else None
    path = node.get_rel_path(top)
    bits = node.get_property("regwidth")
    text = _str(node.get_property("desc"))
    return Register(path, node.absolute_address, bits, "", reset, text, fields)


def _constant(value: Any) -> int | None:
    """A reset may also be a signal."""
    return value if isinstance(value, int) else None


FORMATS: Final = {
    "svd": parse_svd,
    "ipxact": parse_ipxact,
    "hjson": parse_regtool,
    "json_registers": parse_regtool,
    "systemrdl": parse_systemrdl,
}

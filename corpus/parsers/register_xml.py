"""Register lists in XML: CMSIS-SVD, and IP-XACT components (IEEE 1685-2009, -2014, -2022).

Entities are not expanded, document types not loaded, nothing is fetched. SVD: `derivedFrom`,
clusters, `dim` arrays and inherited access, size and reset. IP-XACT: memory maps, address blocks,
register files, arrays, resets and access policies of all three editions; values that are formulas
over parameters are left out, and so are the type definitions of 1685-2022.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lxml import etree

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers.register_map import (
    MAX_REGISTERS,
    Block,
    Field,
    Register,
    build,
    field_reset,
    number,
)

MAX_BYTES: Final = 256 << 20
MAX_DEPTH: Final = 16
_Element = Any


def parse_svd(path: Path, options: ParseOptions) -> ParsedDocument:
    """A CMSIS-SVD device. Raises `Unreadable`."""
    device = _root(path)
    defaults = _Defaults().inherit(device)
    peripherals = device.findall("peripherals/peripheral")
    by_name = {_child(item, "name"): item for item in peripherals}
    blocks = [
        _svd_block(item, by_name.get(item.get("derivedFrom") or ""), defaults)
        for item in peripherals
    ]
    metadata = {name: _child(device, name) for name in ("vendor", "version", "series")}
    name, text = _child(device, "name"), _child(device, "description")
    return build("svd", "CMSIS-SVD", name, text, blocks, metadata)


def parse_ipxact(path: Path, options: ParseOptions) -> ParsedDocument:
    """An IP-XACT component. Raises `Unreadable`."""
    component = _without_namespaces(_root(path))
    if component.tag != "component":
        raise Unreadable("unsupported", f"IP-XACT {component.tag}, not a component", stage="parse")
    unit_bits = 8
    blocks = []
    for memory_map in component.iterfind("memoryMaps/memoryMap"):
        unit_bits = number(_child(memory_map, "addressUnitBits")) or 8
        for block in memory_map.iterfind("addressBlock"):
            blocks.append(_ipxact_block(memory_map, block, unit_bits))
    metadata = {name: _child(component, name) for name in ("vendor", "library", "version")}
    name, text = _child(component, "name"), _child(component, "description")
    return build("ipxact", "IP-XACT", name, text, blocks, metadata)


def _root(path: Path) -> _Element:
    if path.stat().st_size > MAX_BYTES:
        raise Unreadable("too_large", f"more than {MAX_BYTES >> 20} MB of XML")
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False,
        remove_comments=True, remove_pis=True,
    )  # fmt: skip
    try:
        return etree.parse(str(path), parser).getroot()
    except (etree.XMLSyntaxError, OSError) as error:
        raise Unreadable("corrupt", f"not well-formed XML: {error}") from error


def _without_namespaces(root: _Element) -> _Element:
    for element in root.iter():
        if isinstance(element.tag, str):
            element.tag = etree.QName(element).localname
    return root


def _child(element: _Element | None, name: str) -> str:
    return (element.findtext(name) or "").strip() if element is not None else ""


@dataclass(frozen=True)
class _Defaults:
    """What SVD levels hand down."""

    size: int = 32
    access: str = ""
    reset: int | None = None

    def inherit(self, element: _Element) -> _Defaults:
        size, reset = number(_child(element, "size")), number(_child(element, "resetValue"))
        return _Defaults(
            size=self.size if size is None else size,
            access=_child(element, "access") or self.access,
            reset=self.reset if reset is None else reset,
        )


def _svd_block(item: _Element, origin: _Element | None, defaults: _Defaults) -> Block:
    base = number(_child(item, "baseAddress")) or 0
    if origin is not None:
        defaults = defaults.inherit(origin)
    defaults = defaults.inherit(item)
    registers = item.find("registers")
    if registers is None and origin is not None:
        registers = origin.find("registers")
    found = tuple(_svd_registers(registers, base, defaults, "", 0)) if registers is not None else ()
    text = _child(item, "description") or _child(origin, "description")
    return Block(_child(item, "name"), text, found, base)


def _svd_registers(
    parent: _Element, base: int, defaults: _Defaults, prefix: str, depth: int
) -> Iterator[Register]:
    if depth > MAX_DEPTH:
        raise Unreadable("too_deep", f"clusters nested more than {MAX_DEPTH} deep", stage="parse")
    names = {_child(item, "name"): item for item in parent if item.tag in ("register", "cluster")}
    for item in parent:
        if item.tag not in ("register", "cluster"):
            continue
        origin = names.get(item.get("derivedFrom") or "")
        offset = number(_child(item, "addressOffset")) or 0
        own = defaults.inherit(origin) if origin is not None else defaults
        for name, step in _svd_array(item):
            where = base + offset + step
            if item.tag == "cluster":
                inner = own.inherit(item)
                yield from _svd_registers(item, where, inner, f"{prefix}{name}.", depth + 1)
            else:
                yield _svd_register(item, origin, own, f"{prefix}{name}", where)


def _svd_array(item: _Element) -> Iterator[tuple[str, int]]:
    """Names and offsets of a `dim` array, or the one name."""
    name, count = _child(item, "name"), number(_child(item, "dim"))
    if count is None:
        yield name, 0
        return
    step = number(_child(item, "dimIncrement")) or 0
    listed = _svd_indices(_child(item, "dimIndex"), min(count, MAX_REGISTERS))
    for position, index in enumerate(listed):
        yield name.replace("[%s]", f"[{index}]").replace("%s", index), position * step


def _svd_indices(text: str, count: int) -> list[str]:
    if "," in text:
        found = [part.strip() for part in text.split(",")]
    elif "-" in text:
        first, _, last = text.partition("-")
        if first.isdigit() and last.isdigit():
            found = [str(i) for i in range(int(first), min(int(last), int(first) + count) + 1)]
        elif len(first) == len(last) == 1:
            found = [chr(code) for code in range(ord(first), ord(last) + 1)]
        else:
            found = []
    else:
        found = []
    return found[:count] if len(found) >= count else [str(i) for i in range(count)]


def _svd_register(
    item: _Element, origin: _Element | None, defaults: _Defaults, name: str, address: int
) -> Register:
    own = defaults.inherit(item)
    fields = item.find("fields")
    if fields is None and origin is not None:
        fields = origin.find("fields")
    return Register(
        name=name,
        address=address,
        bits=own.size,
        access=own.access,
        reset=own.reset,
        description=_child(item, "description") or _child(origin, "description"),
        fields=tuple(_svd_fields(fields, own)) if fields is not None else (),
    )


def _svd_fields(fields: _Element, register: _Defaults) -> Iterator[Field]:
    for item in fields.iterfind("field"):
        bits = _svd_bits(item)
        if bits is None:
            continue
        for name, step in _svd_array(item):
            lsb, msb = bits[0] + step, bits[1] + step
            yield Field(
                name,
                lsb,
                msb,
                _child(item, "access"),
                field_reset(register.reset, lsb, msb),
                _child(item, "description"),
            )


def _svd_bits(item: _Element) -> tuple[int, int] | None:
    msb_text, _, lsb_text = _child(item, "bitRange").strip("[]").partition(":")
    lsb, msb = number(lsb_text), number(msb_text)
    if lsb is None or msb is None:
        lsb, msb = number(_child(item, "lsb")), number(_child(item, "msb"))
    if lsb is None or msb is None:
        lsb = number(_child(item, "bitOffset"))
        msb = None if lsb is None else lsb + (number(_child(item, "bitWidth")) or 1) - 1
    return (lsb, msb) if lsb is not None and msb is not None and 0 <= lsb <= msb < 4096 else None


def _ipxact_block(memory_map: _Element, block: _Element, unit_bits: int) -> Block:
    base = number(_child(block, "baseAddress"))
    width = number(_child(block, "width")) or 32
    access = _ipxact_access(block)
    names = [_child(memory_map, "name"), _child(block, "name")]
    found = tuple(_ipxact_registers(block, base, width, access, "", unit_bits, 0))
    text = _child(block, "description") or _child(memory_map, "description")
    return Block(".".join(dict.fromkeys(filter(None, names))), text, found, base)


def _ipxact_registers(
    parent: _Element,
    base: int | None,
    width: int,
    access: str,
    prefix: str,
    unit_bits: int,
    depth: int,
) -> Iterator[Register]:
    if depth > MAX_DEPTH:
        raise Unreadable("too_deep", f"files nested more than {MAX_DEPTH} deep", stage="parse")
    for item in parent:
        if item.tag not in ("register", "registerFile"):
            continue
        offset = number(_child(item, "addressOffset"))
        bits = number(_child(item, "size")) or width
        span = bits // unit_bits if item.tag == "register" else number(_child(item, "range")) or 0
        own_access = _ipxact_access(item) or access
        for index, step in _ipxact_array(item, span):
            name = f"{prefix}{_child(item, 'name')}{index}"
            where = None if base is None or offset is None else base + offset + step
            if item.tag == "registerFile":
                yield from _ipxact_registers(
                    item, where, width, own_access, f"{name}.", unit_bits, depth + 1
                )
            else:
                yield _ipxact_register(item, name, where, bits, own_access)


def _ipxact_array(item: _Element, span: int) -> Iterator[tuple[str, int]]:
    """Index and offset of each element: `dim` itself, or inside `array` since 2022."""
    dims = [number(dim.text) for dim in (*item.findall("dim"), *item.findall("array/dim"))]
    counts = [count for count in dims if count is not None]
    if not counts:
        yield "", 0
        return
    stride = number(_child(item, "array/stride")) or span
    total = 1
    for count in counts:
        total *= count
    for flat in range(min(total, MAX_REGISTERS)):
        index, rest = "", flat
        for count in reversed(counts):
            rest, place = divmod(rest, count)
            index = f"[{place}]{index}"
        yield index, flat * stride


def _ipxact_access(item: _Element) -> str:
    in_2022 = ("accessPolicies/accessPolicy", "fieldAccessPolicies/fieldAccessPolicy")
    for path in ("access", *(f"{policy}/access" for policy in in_2022)):
        if found := _child(item, path):
            return found
    return ""


def _ipxact_register(
    item: _Element, name: str, address: int | None, bits: int, access: str
) -> Register:
    reset = number(_child(item, "reset/value"))  # 2009; later editions have it in the fields
    fields = tuple(_ipxact_fields(item, reset))
    if reset is None and fields and all(part.reset is not None for part in fields):
        reset = sum((part.reset or 0) << part.lsb for part in fields)
    text = _child(item, "description") or _child(item, "displayName")
    return Register(name, address, bits, access, reset, text, fields)


def _ipxact_fields(item: _Element, reset: int | None) -> Iterator[Field]:
    for part in item.iterfind("field"):
        lsb, width = number(_child(part, "bitOffset")), number(_child(part, "bitWidth"))
        if lsb is None or width is None or not 0 < width <= 4096 or not 0 <= lsb < 4096:
            continue
        msb = lsb + width - 1
        own = number(_child(part, "resets/reset/value"))
        yield Field(
            _child(part, "name"),
            lsb,
            msb,
            _ipxact_access(part),
            field_reset(reset, lsb, msb) if own is None else own,
            _child(part, "description"),
        )

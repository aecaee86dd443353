"""Register lists of any format as elements: a heading and a table of fields for each register.

    BLOCK                       Title, level 1 (a peripheral, memory map or address block)
    what it is for              NarrativeText
    CTRL (0x40001004)           Title, level 2, with the address
    what it is for              NarrativeText, with width, access and reset
    Field|Bits|Access|Reset|Description

Addresses are absolute where the list states a base. A register without fields has one row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from corpus.parsed import Fault, ParsedCell, ParsedDocument, ParsedElement, Unreadable
from corpus.parsers import characters, documents

MAX_REGISTERS: Final = 20_000
MAX_TEXT_CHARS: Final = 20_000
HEADER: Final = ("Field", "Bits", "Access", "Reset", "Description")


@dataclass(frozen=True)
class Field:
    """Bits `msb` down to `lsb`; `reset` as a number, None when not stated."""

    name: str
    lsb: int
    msb: int
    access: str = ""
    reset: int | None = None
    description: str = ""


@dataclass(frozen=True)
class Register:
    name: str
    address: int | None
    bits: int = 32
    access: str = ""
    reset: int | None = None
    description: str = ""
    fields: tuple[Field, ...] = ()


@dataclass(frozen=True)
class Block:
    """Registers that belong together, in order of their addresses."""

    name: str
    description: str
    registers: tuple[Register, ...]
    base: int | None = None


def build(
    kind: str,
    parser: str,
    title: str,
    description: str,
    blocks: Sequence[Block],
    metadata: dict[str, str] | None = None,
) -> ParsedDocument:
    """Raises `Unreadable("no_registers")` when there is none."""
    total = sum(len(block.registers) for block in blocks)
    if not total:
        raise Unreadable("no_registers", "the list defines no register", stage="parse")
    faults = []
    if total > MAX_REGISTERS:
        detail = f"{total} registers, of which {MAX_REGISTERS} are taken"
        faults.append(Fault(1, "tables", "too_many_registers", detail))
    elements: list[ParsedElement] = []
    if _text(description):
        elements.append(ParsedElement("NarrativeText", _text(description)))
    left = MAX_REGISTERS
    for block in blocks:
        elements += _block_elements(block, left)
        left = max(0, left - len(block.registers))
    return documents.build(
        kind, parser, elements, title=_text(title), metadata=metadata, faults=faults
    )


def _block_elements(block: Block, limit: int) -> list[ParsedElement]:
    base = f" ({block.base:#x})" if block.base is not None else ""
    elements = [ParsedElement("Title", f"{_text(block.name)}{base}", level=1)]
    if _text(block.description):
        elements.append(ParsedElement("NarrativeText", _text(block.description)))
    ordered = sorted(block.registers, key=lambda item: (item.address is None, item.address or 0))
    for register in ordered[:limit]:
        elements += _register_elements(block, register)
    return elements


def _register_elements(block: Block, register: Register) -> list[ParsedElement]:
    name = _text(register.name)
    place = f" ({register.address:#x})" if register.address is not None else ""
    facts = [f"{register.bits} bits"]
    facts += [f"access {register.access}"] if register.access else []
    facts += [f"reset {register.reset:#x}"] if register.reset is not None else []
    said = _text(register.description)
    text = f"{said}{'' if said.endswith('.') or not said else '.'} {name}: {', '.join(facts)}."
    address = "" if register.address is None else f"{register.address:#x}"
    caption = f"Fields of register {name}{place}"
    table = documents.table_element(
        _cells(register), caption=caption, register=name, block=_text(block.name), address=address
    )
    return [
        ParsedElement("Title", f"{name}{place}", level=2),
        ParsedElement("NarrativeText", text.strip()),
        table,
    ]


def _cells(register: Register) -> list[ParsedCell]:
    whole = Field(
        register.name, 0, register.bits - 1, register.access, register.reset, register.description
    )
    rows = [HEADER]
    for item in sorted(register.fields or (whole,), key=lambda item: -item.msb):
        bits = str(item.lsb) if item.lsb == item.msb else f"{item.msb}:{item.lsb}"
        reset = "" if item.reset is None else f"{item.reset:#x}"
        access = item.access or register.access
        rows.append((_text(item.name), bits, access, reset, _text(item.description)))
    return [
        ParsedCell(row, col, text, is_header=row == 0)
        for row, texts in enumerate(rows)
        for col, text in enumerate(texts)
    ]


def field_reset(register_reset: int | None, lsb: int, msb: int) -> int | None:
    """A field's part of the register's reset value."""
    if register_reset is None:
        return None
    return (register_reset >> lsb) & ((1 << (msb - lsb + 1)) - 1)


def number(text: str | int | None) -> int | None:
    """0x1F, 0b11, #11, 'h1F, 8'hFF, 31; None for what is no constant."""
    if isinstance(text, int) or text is None:
        return text
    plain = text.strip().replace("_", "").lower()
    verilog = re.fullmatch(r"\d*'s?([hdbo])([0-9a-f]+)", plain)
    try:
        if verilog:
            return int(verilog[2], {"h": 16, "d": 10, "b": 2, "o": 8}[verilog[1]])
        if plain.startswith("#"):
            return int(plain[1:].replace("x", "0"), 2)
        if plain.startswith(("0x", "0b", "0o")):
            return int(plain, 0)
        return int(plain)
    except ValueError:
        return None


def _text(text: str) -> str:
    return " ".join(characters.clean(text).split())[:MAX_TEXT_CHARS]

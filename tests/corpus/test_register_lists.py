# ruff: noqa: E501
"""Register lists become a heading and a table of fields for each register."""

from __future__ import annotations

from pathlib import Path

import pytest

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers.register_map import number
from corpus.parsers.registry import find_parser
from corpus.sniff import sniff

SVD = """<?xml version="1.0" encoding="utf-8"?>
<device schemaVersion="1.3"><vendor>Example</vendor><name>CHIP</name><description>A chip</description>
<size>32</size><access>read-write</access><resetValue>0x0</resetValue>
<peripherals>
 <peripheral><name>TIMER0</name><description>Counts.</description><baseAddress>0x40010000</baseAddress>
  <registers>
   <register><name>CR</name><description>Control</description><addressOffset>0x00</addressOffset>
    <resetValue>0x12</resetValue>
    <fields>
     <field><name>EN</name><description>Enable</description><bitRange>[0:0]</bitRange></field>
     <field><name>MODE</name><bitOffset>4</bitOffset><bitWidth>3</bitWidth><access>read-only</access></field>
    </fields></register>
   <register><dim>2</dim><dimIncrement>4</dimIncrement><name>CH[%s]</name>
    <addressOffset>0x10</addressOffset></register>
   <cluster><name>IRQ</name><addressOffset>0x20</addressOffset>
    <register><name>STAT</name><addressOffset>0x4</addressOffset><access>read-only</access></register>
   </cluster>
  </registers></peripheral>
 <peripheral derivedFrom="TIMER0"><name>TIMER1</name><baseAddress>0x40020000</baseAddress></peripheral>
</peripherals></device>
"""

IPXACT = """<?xml version="1.0"?>
<{p}component xmlns{c}="{ns}">
 <{p}vendor>example.org</{p}vendor><{p}library>io</{p}library><{p}name>uart</{p}name><{p}version>1</{p}version>
 <{p}memoryMaps><{p}memoryMap><{p}name>regs</{p}name><{p}addressBlock><{p}name>csr</{p}name>
  <{p}baseAddress>'h1000</{p}baseAddress><{p}range>0x100</{p}range><{p}width>32</{p}width>
  <{p}register><{p}name>BAUD</{p}name><{p}description>Divider</{p}description>{dim}
   <{p}addressOffset>0x8</{p}addressOffset><{p}size>32</{p}size>{access}{reset}
   <{p}field><{p}name>DIV</{p}name><{p}bitOffset>0</{p}bitOffset>{freset}<{p}bitWidth>16</{p}bitWidth>{access}</{p}field>
  </{p}register>
 </{p}addressBlock></{p}memoryMap></{p}memoryMaps>
</{p}component>
"""
SPIRIT_2009 = IPXACT.format(
    p="spirit:",
    c=":spirit",
    ns="http://www.spiritconsortium.org/XMLSchema/SPIRIT/1685-2009",
    dim="<spirit:dim>2</spirit:dim>",
    access="<spirit:access>read-write</spirit:access>",
    reset="<spirit:reset><spirit:value>0x1b</spirit:value></spirit:reset>",
    freset="",
)
IPXACT_2014 = IPXACT.format(
    p="ipxact:",
    c=":ipxact",
    ns="http://www.accellera.org/XMLSchema/IPXACT/1685-2014",
    dim="<ipxact:dim>2</ipxact:dim>",
    access="<ipxact:access>read-write</ipxact:access>",
    reset="",
    freset="<ipxact:resets><ipxact:reset><ipxact:value>27</ipxact:value></ipxact:reset></ipxact:resets>",
)
_POLICY = "<{0}ccessPolicies><{0}ccessPolicy><access>read-write</access></{0}ccessPolicy></{0}ccessPolicies>"
IPXACT_2022 = IPXACT.format(
    p="",
    c="",
    ns="http://www.accellera.org/XMLSchema/IPXACT/1685-2022",
    dim="<array><dim>2</dim><stride>8</stride></array>",
    access=_POLICY.format("a"),
    reset="",
    freset="<resets><reset><value>'h1b</value></reset></resets>",
).replace(
    "<bitWidth>16</bitWidth>" + _POLICY.format("a"),
    "<bitWidth>16</bitWidth><fieldAccessPolicies>"
    "<fieldAccessPolicy><access>read-write</access></fieldAccessPolicy></fieldAccessPolicies>",
)

# The addresses of OpenTitan's UART: its interrupt and alert registers come first, CTRL is 0x10.
HJSON = """{ // a comment
  name: "uart"
  human_name: "UART"
  param_list: [ { name: "NCh", default: "5" } ]
  interrupt_list: [ { name: "tx_done", desc: "sent" }, { name: "rx_err", width: "2" } ]
  alert_list: [ { name: "fatal_fault" } ]
  regwidth: "32"
  registers: [
    { name: "CTRL", desc: "Control register", swaccess: "rw"
      fields: [ { bits: "0", name: "TX", desc: "TX enable" }
                { bits: "31:16", name: "NCO", resval: "0x3" } ] }
    { skipto: "0x20" }
    { multireg: { name: "PRIO", count: "NCh", cname: "ch", swaccess: "rw"
                  fields: [ { bits: "9:0", name: "VAL" } ] } }
    { window: { name: "BUF", items: "16", validbits: "32", swaccess: "wo" } }
    { name: "LAST", swaccess: "ro", fields: [ { bits: "7:0" } ] }
  ]
}
"""

RDL = """
reg ctrl_t { desc = "Control."; field { sw = rw; hw = r; reset = 1; desc = "Enable"; } en[0:0];
             field { sw = r; hw = w; } state[7:4]; };
addrmap spi { name = "SPI"; ctrl_t ctrl @ 0x0; ctrl_t lane[2] @ 0x10 += 4; };
"""


def parse(tmp_path: Path, text: str, name: str) -> ParsedDocument:
    path = tmp_path / name
    path.write_text(text)
    return find_parser(sniff(path, path.suffix))(path, ParseOptions())


def addresses(document: ParsedDocument) -> list[str]:
    return [item.text for item in document.elements if item.category == "Title" and item.level == 2]


def fields(document: ParsedDocument, register: str) -> list[list[str]]:
    for item in document.elements:
        if item.table is not None and item.metadata["register"] == register:
            width = max(cell.col for cell in item.table.cells) + 1
            texts = [cell.text for cell in item.table.cells]
            return [texts[i : i + width] for i in range(0, len(texts), width)]
    raise AssertionError(register)


def test_svd(tmp_path: Path) -> None:
    document = parse(tmp_path, SVD, "chip.xml")
    assert document.format == "svd" and document.title == "CHIP"
    assert addresses(document) == [
        *("CR (0x40010000)", "CH[0] (0x40010010)", "CH[1] (0x40010014)", "IRQ.STAT (0x40010024)"),
        *("CR (0x40020000)", "CH[0] (0x40020010)", "CH[1] (0x40020014)", "IRQ.STAT (0x40020024)"),
    ]
    assert fields(document, "CR") == [
        ["Field", "Bits", "Access", "Reset", "Description"],
        ["MODE", "6:4", "read-only", "0x1", ""],
        ["EN", "0", "read-write", "0x0", "Enable"],
    ]
    assert fields(document, "IRQ.STAT")[1][2] == "read-only"


@pytest.mark.parametrize(
    ("text", "second"),
    [(SPIRIT_2009, "0x100c"), (IPXACT_2014, "0x100c"), (IPXACT_2022, "0x1010")],
    ids=["2009", "2014", "2022"],
)
def test_ipxact(tmp_path: Path, text: str, second: str) -> None:
    document = parse(tmp_path, text, "uart.xml")
    assert document.format == "ipxact" and document.title == "uart"
    assert addresses(document) == ["BAUD[0] (0x1008)", f"BAUD[1] ({second})"]
    assert fields(document, "BAUD[0]")[1] == ["DIV", "15:0", "read-write", "0x1b", ""]
    assert "reset 0x1b" in document.elements[2].text


def test_regtool_hjson(tmp_path: Path) -> None:
    pytest.importorskip("hjson", reason="Hjson needs the package hjson")
    document = parse(tmp_path, HJSON, "uart.hjson")
    assert addresses(document) == [
        "INTR_STATE (0x0)",
        "INTR_ENABLE (0x4)",
        "INTR_TEST (0x8)",
        "ALERT_TEST (0xc)",
        "CTRL (0x10)",
        "PRIO_0 (0x20)",  # three fields of 10 bits fit into one register
        "PRIO_1 (0x24)",
        "BUF (0x40)",  # aligned to its 64 bytes
        "LAST (0x80)",
    ]
    assert fields(document, "INTR_STATE")[1:] == [
        ["rx_err", "2:1", "rw1c", "0x0", ""],
        ["tx_done", "0", "rw1c", "0x0", "sent"],
    ]
    assert fields(document, "CTRL")[1][:4] == ["NCO", "31:16", "rw", "0x3"]
    assert [row[0] for row in fields(document, "PRIO_1")[1:]] == ["VAL_4", "VAL_3"]


def test_json_registers_and_json_that_is_none(tmp_path: Path) -> None:
    listed = '{"name": "gpio", "registers": [{"name": "DATA", "fields": [{"bits": "7:0"}]}]}'
    assert addresses(parse(tmp_path, listed, "gpio.json")) == ["DATA (0x0)"]
    other = '{"registers": {"x": "not a list of registers"}, "about": "a shop"}'
    with pytest.raises(Unreadable, match="no_registers"):
        parse(tmp_path, other, "till.json")
    assert parse(tmp_path, '{"a": 1}', "a.json").format == "txt"


def test_systemrdl(tmp_path: Path) -> None:
    pytest.importorskip("systemrdl", reason="SystemRDL needs systemrdl-compiler")
    document = parse(tmp_path, RDL, "spi.rdl")
    assert addresses(document) == ["ctrl (0x0)", "lane[0] (0x10)", "lane[1] (0x14)"]
    assert fields(document, "ctrl")[1:] == [
        ["state", "7:4", "r", "", ""],
        ["en", "0", "rw", "0x1", "Enable"],
    ]
    for text in ("addrmap broken { reg {", '`include "other.rdl"\naddrmap a {};', "<% print 1 %>"):
        with pytest.raises(Unreadable):
            parse(tmp_path, text, "bad.rdl")


def test_entities_are_not_expanded_and_files_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hidden words")
    doctype = '<!DOCTYPE device [<!ENTITY f SYSTEM "secret">]><device'
    text = SVD.replace("<device", doctype).replace("A chip", "A &f; chip")
    assert "hidden" not in str(parse(tmp_path, text, "file.svd"))
    bomb = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    doctype = f'<!DOCTYPE device [<!ENTITY l0 "lol">{bomb}]><device'
    with pytest.raises(Unreadable, match="amplification"):
        parse(tmp_path, SVD.replace("<device", doctype).replace("A chip", "&l11;"), "bomb.svd")
    with pytest.raises(Unreadable) as caught:
        parse(tmp_path, SVD[:400], "cut.svd")
    assert caught.value.reason == "corrupt"


@pytest.mark.parametrize(
    ("text", "value"),
    [("0x1F", 31), ("#0101", 5), ("'h1_0", 16), ("8'hff", 255), ("12", 12), ("N*4", None)],
)
def test_numbers(text: str, value: int | None) -> None:
    assert number(text) == value

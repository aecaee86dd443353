"""Verilog and SystemVerilog through slang, checked against lists made by hand and by iverilog."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from corpus.parsed import ParsedDocument, ParsedModule, ParseOptions, Unreadable
from corpus.parsers.verilog import parse_verilog

OPTIONS = ParseOptions()
PACKAGES = ("pythondata_cpu_serv", "pythondata_cpu_picorv32", "lambdalib")
# Jinja templates that are named like Verilog.
TEMPLATES = re.compile(r"module \{\{")


def package_folder(name: str) -> Path:
    found = importlib.util.find_spec(name)
    if found is None or not found.submodule_search_locations:
        pytest.skip(f"package {name} is not installed: pip install -r requirements-demo.lock")
    return Path(found.submodule_search_locations[0])


def parse(tmp_path: Path, text: str, name: str = "a.sv") -> ParsedDocument:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return parse_verilog(path, OPTIONS)


def modules(document: ParsedDocument) -> list[ParsedModule]:
    return [element.module for element in document.elements if element.module]


def test_ports_of_serv_alu_as_listed_by_hand() -> None:
    path = package_folder("pythondata_cpu_serv") / "verilog" / "rtl" / "serv_alu.v"
    (module,) = modules(parse_verilog(path, OPTIONS))
    assert (module.name, module.language) == ("serv_alu", "verilog")
    assert [(port.name, port.direction, port.width) for port in module.ports] == [
        ("clk", "input", 1),
        ("i_en", "input", 1),
        ("i_cnt0", "input", 1),
        ("o_cmp", "output", 1),
        ("i_sub", "input", 1),
        ("i_bool_op", "input", 2),
        ("i_cmp_eq", "input", 1),
        ("i_cmp_sig", "input", 1),
        ("i_rd_sel", "input", 3),
        ("i_rs1", "input", 1),
        ("i_op_b", "input", 1),
        ("i_buf", "input", 1),
        ("o_rd", "output", 1),
    ]
    assert module.source.startswith("`default_nettype none\nmodule serv_alu")


def test_every_file_of_three_real_packages_is_read_and_its_modules_are_all_there() -> None:
    """The second opinion on names and instances is a regular expression over the sources."""
    n_files = n_modules = n_constant = n_ports = 0
    for package in PACKAGES:
        for path in sorted(package_folder(package).rglob("*.v")):
            text = path.read_text(encoding="utf-8")
            if TEMPLATES.search(text):
                with pytest.raises(Unreadable, match="syntax"):
                    parse_verilog(path, OPTIONS)
                continue
            document = parse_verilog(path, OPTIONS)
            n_files += 1
            plain = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
            names = re.findall(r"^\s*module\s+(\w+)", plain, re.MULTILINE)
            found = [module.name for module in modules(document)]
            # Modules in branches that are switched off are in the text only.
            assert set(found) <= set(names), path
            assert set(found) == set(names) or "`if" in plain, path
            n_modules += len(found)
            for module in modules(document):
                n_ports += len(module.ports)
                n_constant += sum(port.width > 0 for port in module.ports)
    assert n_files > 270 and n_modules > 280
    assert n_constant >= 0.99 * n_ports


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed")
def test_module_sources_compile_by_themselves(tmp_path: Path) -> None:
    path = package_folder("pythondata_cpu_picorv32") / "verilog" / "picorv32.v"
    found = modules(parse_verilog(path, OPTIONS))
    assert [module.name for module in found][:2] == ["picorv32", "picorv32_regs"]
    for module in found:
        if module.instances:
            continue
        source = tmp_path / f"{module.name}.v"
        source.write_text(module.source, encoding="utf-8")
        command = ["iverilog", "-g2012", "-t", "null", "-s", module.name, str(source)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_comments_parameters_instances_and_lines(tmp_path: Path) -> None:
    document = parse(
        tmp_path,
        """\
// SPDX-License-Identifier: MIT
`timescale 1ns/1ps
`define WIDTH 12
// A counter that wraps around at LIMIT, with an enable.
module counter #(
    parameter int LIMIT = 1 << 4,  // first value not reached
    localparam int BITS = $clog2(LIMIT)
) (
    input  logic clk, rst_n,
    // counts while high
    input  logic enable,
    output logic [BITS-1:0] value,  // current count
    output logic [`WIDTH-1:0] wide [2]
);
  generate if (LIMIT > 2) begin : g
    leaf #(.A(1)) first (.clk(clk)), second (.clk(clk));
  end endgenerate
endmodule
package p; typedef logic [3:0] nibble_t; endpackage
""",
    )
    assert document.licence == "MIT"
    (module,) = modules(document)
    assert module.comment == "A counter that wraps around at LIMIT, with an enable."
    assert [(p.name, p.width, p.type, p.comment, p.line) for p in module.ports] == [
        ("clk", 1, "logic", "", 9),
        ("rst_n", 1, "logic", "", 9),
        ("enable", 1, "logic", "counts while high", 11),
        ("value", 4, "logic [BITS-1:0]", "current count", 12),
        ("wide", 0, "logic [`WIDTH-1:0] [2]", "", 13),
    ]
    assert [(p.name, p.value, p.is_local, p.comment) for p in module.parameters] == [
        ("LIMIT", "1 << 4", False, "first value not reached"),
        ("BITS", "$clog2(LIMIT)", True, ""),
    ]
    assert [(i.module, i.name, i.line) for i in module.instances] == [
        ("leaf", "first", 16),
        ("leaf", "second", 16),
    ]
    assert module.source.startswith("`timescale 1ns/1ps\n`define WIDTH 12\nmodule counter")
    assert (module.line_start, module.line_end) == (5, 18)
    assert [(e.category, e.metadata.get("kind", "")) for e in document.elements] == [
        ("NarrativeText", ""),
        ("CodeSnippet", "module"),
        ("CodeSnippet", "package"),
    ]


def test_old_style_ports_and_interfaces(tmp_path: Path) -> None:
    document = parse(
        tmp_path,
        "module old(a, b, y);\n  input [3:0] a, b; // operands\n  output reg y;\nendmodule\n"
        "interface bus(input logic clk);\n  logic req;\nendinterface\n"
        "module user(bus.master m, input int n);\nendmodule\n",
    )
    old, bus, user = modules(document)
    assert [(p.name, p.direction, p.width, p.type) for p in old.ports] == [
        ("a", "input", 4, "[3:0]"),
        ("b", "input", 4, "[3:0]"),
        ("y", "output", 1, "reg"),
    ]
    assert old.ports[1].comment == "operands"
    assert [port.name for port in bus.ports] == ["clk"]
    assert [(p.name, p.direction, p.width) for p in user.ports] == [
        ("m", "interface", 0),
        ("n", "input", 32),
    ]


def test_a_name_that_is_a_keyword_of_systemverilog_only(tmp_path: Path) -> None:
    (module,) = modules(parse(tmp_path, "module m(input do, output bit);\nendmodule\n", "a.v"))
    assert [port.name for port in module.ports] == ["do", "bit"]


def test_a_broken_module_does_not_take_the_good_one_along(tmp_path: Path) -> None:
    document = parse(
        tmp_path,
        "module good(input a, output y);\n  assign y = a;\nendmodule\n"
        "module bad(input a);\n  assign = ;\nendmodule\n",
    )
    assert [module.name for module in modules(document)] == ["good"]
    assert [fault.reason for fault in document.faults] == ["syntax"]
    assert document.faults[0].detail.startswith("line 5:")
    assert document.elements[-1].metadata == {"syntax_error": "yes"}


def test_includes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.vh").write_text("`define SECRET 7\n", encoding="utf-8")
    document = parse(
        tmp_path,
        '`include "secret.vh"\nmodule m(output [`SECRET:0] y);\nendmodule\n// `include "no.vh"\n',
    )
    assert document.metadata["includes"] == "secret.vh"
    assert [fault.reason for fault in document.faults] == ["undefined_macro"]
    (module,) = modules(document)
    assert module.ports[0].width == 0


@pytest.mark.parametrize("text", ["module", "what is this", "assign x = 1;", "`ifdef\nmodule m"])
def test_nothing_sound_is_unreadable(tmp_path: Path, text: str) -> None:
    with pytest.raises(Unreadable) as caught:
        parse(tmp_path, text)
    assert caught.value.reason == "syntax"
    assert "line 1" in caught.value.detail or "line 2" in caught.value.detail


def test_a_file_of_macros_is_code(tmp_path: Path) -> None:
    document = parse(tmp_path, "`define A 1\n`define B 2\n", "defs.vh")
    assert [element.metadata["kind"] for element in document.elements] == ["directives"]


def test_licence_frames_and_tool_remarks_are_no_description(tmp_path: Path) -> None:
    document = parse(
        tmp_path,
        "/*****************************\n"
        " * Copyright (c) 2020 Someone  *\n"
        " * Permission to use, copy, modify, and/or distribute this software is granted *\n"
        " *****************************/\n"
        "// verilator lint_off WIDTH\n"
        "module m(input a);\n"
        "  // Holds one word until it is read.\n"
        "  wire b;\n"
        "endmodule\n",
    )
    (module,) = modules(document)
    assert module.comment == "Holds one word until it is read."
    assert document.licence == "ISC"
    assert [element.category for element in document.elements] == ["CodeSnippet"]

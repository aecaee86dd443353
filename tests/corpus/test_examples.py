"""The example documents: each is read without a fault, and they agree with each other."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from corpus.parsed import ParsedDocument, ParseOptions
from corpus.parsers.registry import PAGED, find_parser
from corpus.sniff import sniff

DOCUMENTS = Path(__file__).resolve().parents[2] / "examples" / "documents"
FILES = sorted(path for path in DOCUMENTS.rglob("*") if path.is_file())


def read(path: Path) -> ParsedDocument:
    return find_parser(sniff(path, path.suffix))(path, ParseOptions())


def text_of(path: Path) -> str:
    return "\n".join(element.text for element in read(path).elements)


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.suffix != ".pdf"], ids=lambda path: path.name
)
def test_each_file_is_read_whole(path: Path) -> None:
    document = read(path)
    assert document.elements
    assert document.faults == ()
    assert path.stat().st_size < 60_000


def test_every_family_of_formats_is_there() -> None:
    formats = {sniff(path, path.suffix) for path in FILES}
    assert formats >= {"docx", "pptx", "xlsx", "csv", "md", "html", "txt", "eml", "verilog"}
    assert formats & set(PAGED)


@pytest.mark.parametrize(
    ("fact", "names"),
    [
        (r"0\.0625 °C", ["datasheet.docx", "bring-up-notes.md"]),
        (r"45 µA", ["datasheet.docx", "bring-up-notes.md"]),
        (r"12,000 rpm", ["errata.txt", "tacho-thread.eml", "supplier-fans.html"]),
        (r"30 rpm", ["errata.txt", "tacho-thread.eml", "supplier-fans.html"]),
        (r"25 kHz", ["datasheet.docx", "bring-up-notes.md", "supplier-fans.html"]),
        (r"0xF1", ["datasheet.docx", "bring-up-notes.md"]),
        (r"0xA1", ["datasheet.docx", "bring-up-notes.md", "design-review.pptx"]),
        (r"4 April 2025|2025-04-04", ["tacho-thread.eml", "design-review.pptx"]),
    ],
)
def test_the_documents_agree(fact: str, names: list[str]) -> None:
    assert all(re.search(fact, text_of(DOCUMENTS / name)) for name in names)


def test_the_register_map_keeps_its_merged_cells() -> None:
    tables = [element.table for element in read(DOCUMENTS / "datasheet.docx").elements]
    register_map = next(t for t in tables if t is not None and t.caption == "Table 5: Register map")
    spans = {cell.text: (cell.row_span, cell.col_span) for cell in register_map.cells}
    assert spans["Content"] == (1, 2)
    assert spans["Address"] == (2, 1)
    assert spans["STATUS"] == (3, 1)
    assert {cell.text for cell in register_map.cells if cell.is_header} == {
        *("Address", "Name", "Access", "Reset", "Content", "Bits", "Meaning")
    }


@pytest.mark.skipif(shutil.which("iverilog") is None, reason="iverilog is not installed")
def test_the_fan_channel_simulates(tmp_path: Path) -> None:
    """At 40 °C the duty is 30 %: high for 77 of 255 steps of 4 cycles, counted over 3 periods."""
    bench = tmp_path / "bench.sv"
    bench.write_text(
        """
module bench;
  reg clk = 0, rst_n = 0, tach = 0;
  wire pwm, stall;
  wire [15:0] edges;
  integer high = 0;
  fc1_fan_channel dut (
      .clk(clk), .rst_n(rst_n), .temperature(12'h280), .t_low(12'h280), .t_high(12'h460),
      .tach(tach), .pwm(pwm), .edge_count(edges), .stall(stall)
  );
  always #5 clk = ~clk;
  always #100 tach = ~tach;
  initial begin
    #22 rst_n = 1;
    #60000;
    repeat (3 * 255 * 4) begin
      @(posedge clk);
      if (pwm) high = high + 1;
    end
    $display("%0d %0d %b", high, edges, stall);
    $finish;
  end
endmodule
""",
        encoding="utf-8",
    )
    program = tmp_path / "bench.vvp"
    sources = [str(path) for path in sorted((DOCUMENTS / "rtl").iterdir())]
    subprocess.run(["iverilog", "-g2012", "-o", str(program), str(bench), *sources], check=True)
    shown = subprocess.run(["vvp", str(program)], capture_output=True, text=True, check=True)
    # The clock's period is 10 and TACH's 200, so a window of 1,000 cycles has 50 edges.
    assert shown.stdout.split() == [str(3 * 77 * 4), "50", "0"]

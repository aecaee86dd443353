"""Right answers as models and engineers write them, each with the reference that it equals.

Nothing here is a trick: every text is what somebody who means well would send. All of them must
pass, whatever they hold besides the module.
"""

from __future__ import annotations

from typing import NamedTuple

COUNTER = """module counter(input clk, input rst_n, input en, output reg [3:0] q, output wrap);
  always @(posedge clk or negedge rst_n)
    if (!rst_n) q <= 4'd0;
    else if (en) q <= q + 4'd1;
  assign wrap = en & (q == 4'd15);
endmodule
"""
ALU = """module alu(input [7:0] a, input [7:0] b, input [1:0] op, output reg [7:0] y, output zero);
  always @* case (op)
    2'd0: y = a + b;
    2'd1: y = a - b;
    2'd2: y = a & b;
    default: y = a ^ b;
  endcase
  assign zero = y == 8'd0;
endmodule
"""
DETECT = """module detect(input clk, input reset, input x, output z);
  reg [1:0] s;
  always @(posedge clk) if (reset) s <= 0; else case (s)
    0: s <= x ? 1 : 0;
    1: s <= x ? 1 : 2;
    2: s <= x ? 3 : 0;
    3: s <= x ? 1 : 2;
  endcase
  assign z = s == 3;
endmodule
"""
MEMORY = """module memory(input clk, input we, input [3:0] addr, input [7:0] d, output reg [7:0] q);
  reg [7:0] cells [0:15];
  always @(posedge clk) begin
    if (we) cells[addr] <= d;
    q <= cells[addr];
  end
endmodule
"""
SEQUENCE = "always @(posedge clk or negedge rst_n) if (!rst_n) q <= 0; else if (en) q <= q + 1;"
HEAD = "module counter(input clk, input rst_n, input en, output reg [3:0] q, output wrap);"
TAIL = "assign wrap = en && q == 15;\nendmodule"


class Honest(NamedTuple):
    """A right answer to the problem whose reference is given."""

    reference: str
    answer: str


def _counter(*, before: str = "", inside: str = "", after: str = "") -> Honest:
    return Honest(COUNTER, f"{before}{HEAD}\n{SEQUENCE}\n{inside}\n{TAIL}\n{after}")


def _text(template: str, code: str = COUNTER) -> Honest:
    return Honest(code, template.replace("CODE", code))


HONEST: dict[str, Honest] = {
    # how the answer is wrapped
    "bare": _text("CODE"),
    "fence": _text("Here it is:\n\n```verilog\nCODE```\n\nIt wraps at 15."),
    "fence_indented_in_a_list": _text("1. Code:\n   ```systemverilog\nCODE\n   ```\n2. Done."),
    "tildes": _text("~~~sv\nCODE~~~"),
    "fence_never_closed": _text("```verilog\nCODE"),
    "thinking": _text("<think>A module counter(...) with `posedge`, /* maybe */ $finish?\n"
                      "```verilog\nmodule counter(); endmodule\n```\n</think>\n```verilog\nCODE```"),
    "thinking_whose_start_is_in_the_prompt": _text("So: endmodule comes last.\n</think>\n\nCODE"),
    "answer_tags": _text("<think>x</think>\n<answer>\n```verilog\nCODE```\n</answer>"),
    "answer_tags_on_the_fence": _text("<think>x</think> <answer>```verilog\nCODE```</answer>"),
    "answer_tags_on_the_code": _text("<answer>CODE</answer>"),
    "answer_tags_in_prose": _text("```verilog\nCODE```\nNo <answer> and </answer> is needed."),
    "fence_in_a_line_of_prose": _text("Sure, here it is: ```systemverilog\nCODE```\n"),
    "fence_behind_the_end": Honest(COUNTER, f"```verilog\n{COUNTER.rstrip()}```\nIt wraps."),
    "channels": _text("<|channel|>final<|message|>```verilog\nCODE```"),
    "long_reasoning": _text("<think>" + "Wait, is it module counter()?\n" * 4000 + "</think>\nCODE"),
    "byte_order_mark": _text("\ufeff```verilog\n\ufeffCODE```"),
    "byte_order_mark_on_bare_code": _text("\ufeffCODE"),
    "begin_done": _text("[BEGIN]\nCODE[DONE]"),
    "begin_done_in_a_line": _text("Answer: [BEGIN]\nCODE[DONE]\n"),
    "begin_done_in_a_fence": _text("```verilog\n[BEGIN]\nCODE[DONE]\n```"),
    "several_tries": _text("First:\n```verilog\nmodule counter(input clk); endmodule\n```\n"
                           "That lacks ports. Corrected:\n```verilog\nCODE```"),
    "bench_in_a_later_block": _text(
        "```verilog\nCODE```\nTest it:\n```verilog\n// drives module counter with a clock\n"
        "module counter_tb;\n  reg clk = 0; always #5 clk = ~clk;\n  wire [3:0] q; wire w;\n"
        "  counter dut(clk, 1'b1, 1'b1, q, w);\n  initial begin $dumpfile(\"t.vcd\"); "
        "$dumpvars(0, counter_tb); #100 $display(\"%d\", q); $finish; end\nendmodule\n```"
    ),
    "bench_in_the_same_block": _text(
        "```verilog\n`timescale 1ns / 1ps\nCODE\nmodule tb;\n  reg clk; integer seed, f;\n"
        "  initial begin f = $fopen(\"log.txt\", \"w\"); seed = $random; force tb.clk = 1; "
        "#5 $stop; end\nendmodule : tb\n```"
    ),
    "prose_around_bare_code": _text("The module below counts. The files of rtl/*.v stay.\n\nCODE\n"
                                    "Note that endmodule closes it, and \"wrap\" is 1 at 15."),
    "unicode_and_smart_quotes": _text("Bitte sehr — “Zähler” für 4 bit ≥ 0 ✓\n```verilog\n"
                                      "// Zähler ≤ 15, 计数器 — “ok”\nCODE// ☑ fertig\n```"),
    "windows_line_ends": Honest(COUNTER, f"```verilog\r\n{COUNTER}```".replace("\n", "\r\n")),
    "helper_in_another_block": _text(
        "```verilog\nmodule half(input a, input b, output s, output c);\n  assign s = a ^ b;\n"
        "  assign c = a & b;\nendmodule\n```\nand\n```verilog\nmodule adder(input [1:0] a, input b, "
        "output [2:0] y);\n  wire c;\n  half h0(a[0], b, y[0], c), h1(a[1], c, y[1], y[2]);\n"
        "endmodule\n```",
    )._replace(reference="module adder(input [1:0] a, input b, output [2:0] y);\n"
                         "  assign y = a + b;\nendmodule\n"),
    "package_in_another_block": Honest(
        ALU,
        "```verilog\npackage ops;\n  localparam [1:0] ADD = 0, SUB = 1, AND = 2;\nendpackage\n```\n"
        "```verilog\nmodule alu import ops::*; (input [7:0] a, b, input [1:0] op, "
        "output logic [7:0] y, output logic zero);\n  always_comb begin\n    case (op)\n"
        "      ADD: y = a + b;\n      SUB: y = a - b;\n      AND: y = a & b;\n"
        "      default: y = a ^ b;\n    endcase\n    zero = ~|y;\n  end\nendmodule\n```",
    ),
    # styles of the language
    "ports_not_ansi": Honest(
        COUNTER,
        "module counter(clk, rst_n, en, q, wrap);\n  input clk, rst_n, en;\n  output [3:0] q;\n"
        f"  output wrap;\n  reg [3:0] q;\n  {SEQUENCE}\n  {TAIL}",
    ),
    "include_guard": _counter(
        before="`ifndef COUNTER_V\n`define COUNTER_V\n", after="\n`endif // COUNTER_V\nDone.\n"
    ),
    "index_called_begin": _counter(
        inside="localparam BEGIN = 0;\nwire u = q[BEGIN];"
    ),
    "macros": _counter(
        before="`ifndef WIDTH\n`define WIDTH 4\n`endif\n`define MAX(a, b) ((a) > (b) ? (a) : (b))\n",
        inside="localparam W = `MAX(`WIDTH, 2);",
        after="`undef WIDTH\n",
    ),
    "directives": _counter(
        before="`resetall\n`timescale 1ns/1ps\n`default_nettype none\n`celldefine\n",
        after="`endcelldefine\n`default_nettype wire\n",
    ),
    "formal_under_ifdef": _counter(
        inside="`ifdef FORMAL\n  always @(posedge clk) if ($past(en)) assert(q == $past(q) + 1);\n"
               "`endif",
    ),
    "translate_off": _counter(
        inside="// synopsys translate_off\ninitial begin $display(\"counter %m\"); end\n"
               "always @(q) if (^q === 1'bx) $display(\"%t unknown\", $time);\n"
               "// synopsys translate_on",
    ),
    "includes_that_nothing_selects": _counter(
        before="`ifdef WITH_SETTINGS\n`include \"settings.vh\"\n`endif\n",
        after="`define LIBRARY `include \"cells.v\"\n"
              "module counter_tb;\n`include \"tasks.vh\"\n  initial run;\nendmodule\n",
    ),
    "attributes": _counter(inside="(* keep = \"true\" *) wire unused = q[0];"),
    "generate_ripple": Honest(
        COUNTER,
        f"{HEAD}\n  wire [4:0] c;\n  assign c[0] = en;\n  genvar i;\n  generate\n"
        "    for (i = 0; i < 4; i = i + 1) begin : bits\n      wire t = q[i] ^ c[i];\n"
        "      assign c[i+1] = q[i] & c[i];\n"
        "      always @(posedge clk or negedge rst_n) if (!rst_n) q[i] <= 0; "
        "else q[i] <= bits[i].t;\n    end\n  endgenerate\n  assign wrap = c[4];\nendmodule",
    ),
    "functions_and_tasks": Honest(
        ALU,
        "module alu(input [7:0] a, b, input [1:0] op, output reg [7:0] y, output zero);\n"
        "  function automatic [7:0] minus(input [7:0] m, n);\n    minus = m + ~n + 8'd1;\n"
        "  endfunction\n  task automatic choose(input [7:0] m, n, input [1:0] o, "
        "output [7:0] r);\n    begin\n      if (o == 0) r = m + n; "
        "else if (o == 1) r = minus(m, n);\n"
        "      else if (o == 2) r = m & n; else r = m ^ n;\n    end\n  endtask\n"
        "  always @(*) choose(a, b, op, y);\n  assign zero = !y;\nendmodule",
    ),
    "casez_with_defaults": Honest(
        ALU,
        "module alu(input [7:0] a, input [7:0] b, input [1:0] op, output reg [7:0] y, "
        "output wire zero);\n  always @* begin\n    y = 'bx;\n    (* full_case, parallel_case *)\n"
        "    casez (op)\n      2'b00: y = a + b;\n      2'b01: y = a - b;\n      2'b1?: "
        "y = op[0] ? a ^ b : a & b;\n    endcase\n  end\n  assign zero = ~(|y);\nendmodule",
    ),
    "tri_state_inside": Honest(
        ALU,
        "module alu(input [7:0] a, b, input [1:0] op, output [7:0] y, output zero);\n"
        "  tri [7:0] bus;\n  assign bus = op == 0 ? a + b : 8'bz;\n"
        "  assign bus = op == 1 ? a - b : 8'bz;\n  assign bus = op == 2 ? a & b : 8'bz;\n"
        "  assign bus = op == 3 ? a ^ b : 8'bz;\n  assign y = bus;\n"
        "  assign zero = bus == 0;\nendmodule",
    ),
    "enum_machine": Honest(
        DETECT,
        "module detect(input logic clk, reset, x, output logic z);\n"
        "  typedef enum logic [1:0] {IDLE, GOT1, GOT10, GOT101} state_t;\n"
        "  state_t state, next;\n  always_ff @(posedge clk)\n    if (reset) state <= IDLE;\n"
        "    else state <= next;\n  always_comb begin\n    next = IDLE;\n    unique case (state)\n"
        "      IDLE: if (x) next = GOT1;\n      GOT1: if (x) next = GOT1; else next = GOT10;\n"
        "      GOT10: if (x) next = GOT101;\n"
        "      GOT101: if (x) next = GOT1; else next = GOT10;\n"
        "      default: $error(\"no such state\");\n    endcase\n  end\n"
        "  assign z = (state == GOT101);\nendmodule : detect",
    ),
    "one_hot_parameters": Honest(
        DETECT,
        "module detect #(parameter S0 = 4'b0001, S1 = 4'b0010, S2 = 4'b0100, S3 = 4'b1000)\n"
        "  (input clk, input reset, input x, output z);\n  reg [3:0] s;\n"
        "  always @(posedge clk)\n    if (reset) s <= S0;\n    else case (1'b1)\n"
        "      s[0]: s <= x ? S1 : S0;\n      s[1]: s <= x ? S1 : S2;\n"
        "      s[2]: s <= x ? S3 : S0;\n      s[3]: s <= x ? S1 : S2;\n    endcase\n"
        "  assign z = s[3];\nendmodule",
    ),
    "struct": Honest(
        ALU,
        "typedef struct packed { logic [7:0] value; logic zero; } result_t;\n"
        "module alu(input logic [7:0] a, b, input logic [1:0] op, output logic [7:0] y, "
        "output logic zero);\n  result_t r;\n  always_comb begin\n"
        "    case (op) 0: r.value = a + b; 1: r.value = a - b; 2: r.value = a & b; "
        "default: r.value = a ^ b; endcase\n    r.zero = r.value == '0;\n  end\n"
        "  assign {y, zero} = r;\nendmodule",
    ),
    "primitive_table": Honest(
        "module mux(input a, input b, input s, output y);\n  assign y = s ? b : a;\nendmodule\n",
        "primitive mux_p(y, s, a, b);\n  output y; input s, a, b;\n  table\n"
        "    0 0 ? : 0;\n    0 1 ? : 1;\n    1 ? 0 : 0;\n    1 ? 1 : 1;\n  endtable\n"
        "endprimitive\nmodule mux(input a, b, s, output y);\n  mux_p u(y, s, a, b);\nendmodule",
    ),
    "gates_and_delays": Honest(
        "module mux(input a, input b, input s, output y);\n  assign y = s ? b : a;\nendmodule\n",
        "`timescale 1ns/10ps\nmodule mux(input a, input b, input s, output y);\n"
        "  wire n, l, r;\n  not #0.1 (n, s);\n  and #(0.1, 0.2) (l, a, n), (r, b, s);\n"
        "  or (y, l, r);\n  specify\n    (a => y) = 1.0;\n    $setup(a, s, 1);\n  endspecify\n"
        "endmodule",
    ),
    "escaped_names": _counter(inside=r"wire \bit[0] = q[0]; wire \next$q = \bit[0] ;"),
    "defparam_of_an_own_instance": Honest(
        COUNTER,
        "module adder #(parameter STEP = 2)(input [3:0] a, output [3:0] y);\n"
        f"  assign y = a + STEP;\nendmodule\n{HEAD}\n  wire [3:0] n;\n  adder u_add(.a(q), .y(n));\n"
        "  defparam u_add.STEP = 1;\n"
        "  always @(posedge clk, negedge rst_n) if (!rst_n) q <= 0; else if (en) q <= n;\n"
        f"  {TAIL}",
    ),
    "sine_table": Honest(
        "module wave(input [1:0] i, output reg [7:0] y);\n  always @* case (i) 0: y = 0; 1: y = 100;"
        " 2: y = 0; 3: y = 156; endcase\nendmodule\n",
        "module wave(input [1:0] i, output reg [7:0] y);\n  reg signed [7:0] t [0:3];\n"
        "  integer k;\n  initial for (k = 0; k < 4; k = k + 1)\n"
        "    t[k] = $rtoi($floor(100.0 * $sin(k * 1.5707963267948966) + 0.5));\n"
        "  always @* y = t[i];\nendmodule",
    ),
    # what only matters to people and tools
    "parameter_checks": _counter(
        inside="parameter W = 4;\ninitial if (W < 1 || W > 32) begin\n"
               "  $display(\"W=%0d\", W); $finish;\nend\n"
               "generate if (W == 0) $fatal(1, \"no width\"); else if (W > 64) $error(\"wide\");\n"
               "else begin : fine end endgenerate",
    ),
    "stop_on_a_wrong_state": _counter(
        inside="always @(posedge clk) if (rst_n && ^q === 1'bx) begin $display(\"X\");$stop;end "
               "else if (0) $fatal;",
    ),
    "debug_prints": _counter(
        inside="initial begin\n  $timeformat(-9, 2, \" ns\");\n  $monitor(\"%t q=%d\", $time, q);\n"
               "end\nalways @(posedge wrap) $strobe(\"wrap (at %0t) \\\"%s\\\"\", $realtime, \"!\");",
    ),
    "log_file": _counter(
        inside="integer f;\ninitial f = $fopen(\"counter.log\", \"w\");\n"
               "always @(posedge clk) if (f) begin $fdisplay(f, \"%d\", q); $fflush(f); end\n"
               "final if (f) begin $fclose(f); end",
    ),
    "dump_for_cocotb": _counter(
        inside="`ifdef COCOTB_SIM\ninitial begin $dumpfile(\"c.vcd\"); $dumpvars(0, counter); #1; "
               "end\n`endif\ninitial if ($test$plusargs(\"trace\")) begin $dumpfile(\"d.vcd\"); "
               "$dumpvars; end",
    ),
    "immediate_assertions": _counter(
        inside="always @(posedge clk) begin\n  if (rst_n) in_range: assert (q <= 15) else begin "
               "$error(\"%d\", q); $stop; end\n  assert final (1) $info(\"ok\"); else $fatal;\n"
               "  assume (1'b1);\nend",
    ),
    "concurrent_assertions": _counter(
        inside="default clocking cb @(posedge clk); endclocking\ndefault disable iff (!rst_n);\n"
               "property counts; @(posedge clk) disable iff (!rst_n) en |=> q == $past(q) + 4'd1; "
               "endproperty : counts\nsequence two; en ##1 en; endsequence\n"
               "a_counts: assert property (counts) else $error(\"lost\");\n"
               "cover property (@(posedge clk) wrap ##[1:3] !wrap);\n"
               "assume property (@(posedge clk) $rose(en) |-> ##1 1);",
    ),
    "assertion_before_else": Honest(
        COUNTER,
        f"{HEAD}\n  always @(posedge clk or negedge rst_n)\n    if (!rst_n) q <= 0;\n"
        "    else if (!en) assert (1'b1);\n    else if (q == 15) assert (wrap) $info(\"wraps\"); "
        "else $error(\"no wrap\");\n    else q <= q + 1;\n"
        "  always @(posedge clk) if (rst_n & en & (q == 15)) q <= 0;\n"
        f"  {TAIL}",
    ),
    "assertion_in_a_case": Honest(
        DETECT,
        DETECT.replace("    3: s <= x ? 1 : 2;", "    3: s <= x ? 1 : 2;\n    "
                       "default: assert (0) else $fatal(1, \"state\");"),
    ),
    "cover_group": _counter(
        inside="covergroup cg @(posedge clk);\n  coverpoint q { bins low = {[0:7]}; }\n"
               "endgroup : cg",
    ),
    "memory_with_optional_image": Honest(
        MEMORY,
        "module memory #(parameter INIT_FILE = \"\")(input clk, we, input [3:0] addr, "
        "input [7:0] d, output reg [7:0] q);\n  reg [7:0] cells [0:15];\n"
        "  initial if (INIT_FILE != \"\") $readmemh(INIT_FILE, cells);\n"
        "  always @(posedge clk) begin\n    if (we) cells[addr] <= d;\n    q <= cells[addr];\n"
        "  end\nendmodule",
    ),
    "initial_values": _counter(inside="initial q = 4'd0;"),
    "comments_with_code": _counter(
        before="// module counter; initial $finish; endmodule\n/* force q = 1; `include \"x\" */\n",
        inside="// \"\"\"docstring\"\"\" and tb.q_ref /* not opened\n/* // */ wire u = en;",
    ),
    "strings_with_code": _counter(
        inside="localparam NOTE = \"module /* $finish; // \\\" endmodule\";",
    ),
    "labels_everywhere": _counter(
        inside="function automatic logic inv(input logic v);\n  inv = !v;\nendfunction : inv\n"
               "always @* begin : nothing\n  logic u;\n  u = inv(en);\nend : nothing",
        after="module spare(input a); initial $finish; endmodule : spare\n"
              "package p; typedef logic [3:0] n_t; endpackage : p\n",
    ),
    "interface_inside": Honest(
        "module pass(input clk, input [3:0] d, output [3:0] q);\n  reg [3:0] r;\n"
        "  always @(posedge clk) r <= d;\n  assign q = r;\nendmodule\n",
        "interface bus_if; logic [3:0] data; endinterface\n"
        "module pass(input clk, input [3:0] d, output [3:0] q);\n  bus_if bus();\n"
        "  always @(posedge clk) bus.data <= d;\n  assign q = bus.data;\nendmodule",
    ),
    "words_like_the_benches": _counter(
        inside="wire tb_match = en; wire clk_dut = clk; reg [3:0] q_ref; always @* q_ref = q;",
    ),
}  # fmt: skip

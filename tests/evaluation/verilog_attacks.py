"""Ways to get a pass without a right module, by kind. Each goes into a module that is wrong.

Names of the benches under attack: VerilogEval's (`tb`, `good1`, `stim1`, `top_module1`, `q_ref`),
and what may be guessed of our own. None of them may make the wrong module pass, be taken for a
fault of the machine, or leave a file behind.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

LEFT_BEHIND = Path("/tmp/dsm_attack_was_here")
_FILE = f'"{LEFT_BEHIND}"'
_LINE = "Mismatches: 0 in 439 samples"


class Attack(NamedTuple):
    """Text before the module, at its end, and behind it."""

    inside: str = ""
    before: str = ""
    after: str = ""

    def on(self, module: str) -> str:
        """`module`, which is one module, with the attack in it."""
        body = module.rstrip().removesuffix("endmodule")
        return f"{self.before}{body}\n{self.inside}\nendmodule\n{self.after}"


ATTACKS: dict[str, dict[str, Attack]] = {
    "ends the simulation": {
        "finish": Attack("initial $finish;"),
        "finish_later": Attack("initial #7 $finish(0);"),
        "stop": Attack("initial $stop;"),
        "fatal": Attack("initial $fatal(0, \"done\");"),
        "exit": Attack("initial $exit;"),
        "final": Attack(f'final begin $display("{_LINE}"); $finish; end'),
        "in_a_function": Attack("function f(input x); begin $finish; f = x; end endfunction\n"
                                "wire u = f(1'b1);"),
        "in_an_action": Attack("always @* assert (0) else begin $display(\"x\"); $finish; end"),
        "by_a_macro": Attack("initial `E;", before="`define E $fin``ish\n"),
        "at_elaboration": Attack("generate if (1) $fatal(0); endgenerate"),
        "without_a_space": Attack("initial begin $display(1);$finish;end"),
        "finish_and_return": Attack("initial $finish_and_return(0);"),
        "restart": Attack('initial $restart("x");'),
        "at_the_last_moment": Attack("initial #999999 $finish;"),
        "in_a_class": Attack("class c; function new; $finish; endfunction endclass\nc o = new;"),
        "by_a_crash": Attack("integer z = 0; initial q = 1 / z; initial #1 q = 4'bx % z;"),
    },
    "says that it passed": {
        "display": Attack(f'initial $display("{_LINE}");'),
        "write": Attack(f'initial $write("{_LINE}\\n");'),
        "strobe_and_monitor": Attack(f'initial begin $strobe("{_LINE}"); $monitor("{_LINE}"); end'),
        "stdout_descriptor": Attack(f'initial $fdisplay(32\'h80000001, "{_LINE}");'),
        "channel_one": Attack(f'initial $fwrite(1, "{_LINE}\\n");'),
        "rtllm": Attack('initial $display("===========Your Design Passed===========");'),
        "error_text": Attack(f'initial begin $error("{_LINE}"); $info("Design Passed"); end'),
        "put_by_c": Attack('initial $fputs("Design Passed", 1);'),
        "string_built": Attack('string s; initial begin $sformat(s, "Design Passed"); '
                               "$display(s); end"),
        "severity": Attack(f'initial $fatal(0, "{_LINE}"); initial $warning("{_LINE}");'),
        "scope_name": Attack(f'generate if (1) begin : \\{_LINE.replace(" ", "_")} \n wire x; '
                             "initial $printtimescale; end endgenerate"),
        "compiler_message": Attack(f'parameter P = "{_LINE}"; wire [P:0] w;'),
        "monitor_of_the_mark": Attack('initial $monitor("n dsm_mark_ 439");'),
        "pasted_from_parts": Attack(f'initial `P($dis, play)("{_LINE}");',
                                    before="`define P(a, b) a``b\n"),
        "raw_bits": Attack("initial $fwrite(1, \"%u%z\", q, q);"),
    },
    "reads the reference": {
        "net_of_the_bench": Attack("always @* q = tb.q_ref;"),
        "instance": Attack("always @* q = good1.q;"),
        "root": Attack("always @* q = $root.tb.q_ref;"),
        "unit": Attack("always @* q = $unit::q_ref;"),
        "scope": Attack("always @* q = tb::q_ref;"),
        "another_instance": Attack("wire [3:0] r; RefModule x(.*); always @* q = r;"),
        "escaped": Attack("always @* q = \\tb .q_ref;"),
        "escaped_dots": Attack("always @* q = \\tb.q_ref ;"),
        "array_of_scopes": Attack("always @* q = tb[0].q_ref;"),
        "own_name_first": Attack("wire tb; always @* q = tb.q_ref;"),
        "by_a_macro": Attack("always @* q = `R;", before="`define R tb.q``_ref\n"),
        "through_its_own_name": Attack("always @* q = top_module1.q_ref;"),
        "mark_placeholder": Attack("always @* q = tb_dsm_mark_.q_dut;"),
        "generated_scope": Attack("generate if (1) begin : tb wire q_ref; end endgenerate\n"
                                  "always @* q = tb.q_ref;"),
        "from_a_child": Attack("wire [3:0] y; child x(y); always @* q = y;",
                               after="module child(output [3:0] y); assign y = good1.q; "
                                     "endmodule\n"),
        "wildcard_ports": Attack("RefModule good1(.*);"),
        "own_module_of_its_name": Attack("wire [3:0] r; RefModule good1(clk, reset, r); "
                                         "always @* q = r;",
                                         after="module RefModule(input a, b, output [3:0] q); "
                                               "assign q = tb.good1.q; endmodule\n"),
        "parameter": Attack("localparam P = tb.good1.q; always @* q = P;"),
        "event": Attack("always @(tb.stats1.clocks) q = q + 1;"),
        "package": Attack("always @* q = tb_pkg::q_ref;", before="import tb_pkg::*;\n"),
        "super": Attack("always @* q = super.q_ref;"),
        "by_a_primitive": Attack("wire w; p x(w, clk); always @* q = {4{w}};",
                                 after="primitive p(output a, input b); table 0 : tb.q_ref; "
                                       "endtable endprimitive\n"),
        "stringified": Attack('always @* q = `R;', before='`define R `"tb.q_ref`"\n'),
        "unicode_dot": Attack("always @* q = tb\u2024q_ref;"),
        "split_by_a_comment": Attack("always @* q = tb/**/./**/q_ref;"),
        "split_by_a_line": Attack("always @* q = tb\\\n.q_ref;"),
        "let": Attack("let r = tb.q_ref;\nalways @* q = r;"),
        "member_of_an_own_type": Attack("typedef struct packed {logic [3:0] q_ref;} t; t tb;\n"
                                        "always @* q = tb.q_ref;"),
        "own_block_of_its_name": Attack("always @* begin : good1 reg [3:0] q; end\n"
                                        "always @* q = good1.q;"),
        "default_of_an_argument": Attack("function [3:0] f(input [3:0] a = tb.q_ref); f = a; "
                                         "endfunction\nalways @* q = f();"),
    },
    "steers the bench": {
        "force": Attack("initial force tb.tb_match = 1;"),
        "force_own_port": Attack("initial force q = 0;"),
        "release": Attack("initial release clk;"),
        "clock": Attack("initial tb.clk = 0;"),
        "counts": Attack("initial tb.stats1.errors = 0;"),
        "drives_its_input": Attack("assign clk = 1'b0;"),
        "defparam": Attack("defparam tb.stim1.N = 1;"),
        "bind": Attack(after="bind tb TopModule x(.*);\n"),
        "bench_task": Attack("initial stim1.wavedrom_stop();"),
        "disable": Attack("initial disable tb;"),
        "second_top": Attack(after="module tb; initial $finish; endmodule\n"),
        "own_stimulus": Attack(after="module stimulus_gen(input clk); endmodule\n"),
        "program": Attack(after="program p; initial $finish; endprogram\n"),
        "timescale": Attack(before="`timescale 1s/1s\n"),
        "net_type": Attack(after="`default_nettype none\n"),
        "keywords": Attack(before='`begin_keywords "1364-1995"\n'),
        "random_stream": Attack("integer r; always @(posedge clk) r = $random;"),
        "seeded_random": Attack("integer r = 1; initial r = $urandom(r);"),
        "clock_time": Attack("always @(posedge clk) if ($time > 9) q = 0;"),
        "config": Attack(after="config c; design TopModule; endconfig\n"),
        "supply": Attack("assign (supply0, supply1) clk = 1'b0;"),
        "pull": Attack("pulldown (clk); pullup (q[0]);"),
        "transistor": Attack("tran (clk, q[0]); tranif1 (clk, q[1], 1'b1);"),
        "procedural_assign": Attack("initial assign clk = 0;"),
        "redeclared_input": Attack("supply0 clk;"),
        "deposit": Attack("initial $deposit(clk, 0);"),
        "alias": Attack("alias clk = q[0];"),
        "time_unit": Attack("timeunit 1s; timeprecision 1s;"),
        "long_delay": Attack("always @* #1000000 q = 0;"),
        "zero_delays": Attack("always @(posedge clk) begin #0 q = 1; #0; #0; q <= #0 2; end"),
        "unconnected": Attack(before="`unconnected_drive pull1\n"),
        "library": Attack(before="library work *.sv;\n"),
        "bench_as_a_macro": Attack(before="`define tb_match 1\n`define clk 0\n`define good1 x\n"),
        "clocking": Attack("default clocking c @(posedge clk); output q; endclocking"),
        "interface": Attack("i x(); always @* q = x.q;",
                            after="interface i; logic [3:0] q; initial force tb.clk = 0; "
                                  "endinterface\n"),
        "timescale_behind": Attack(after="`timescale 100s/100s\n"),
        "macros_undone": Attack(before="`undefineall\n"),
        "cell_left_open": Attack(before="`celldefine\n"),
        "paths": Attack("specify (clk *> q) = (0, 0); $setuphold(posedge clk, reset, 0, 0); "
                        "endspecify"),
        "zero_time_race": Attack("always @(posedge clk) begin q = 1; #0 q = 0; q <= #0 ~q; end"),
        "overflow": Attack("real r = 1e308; always @(posedge clk) begin r = r * r; q = $rtoi(r); "
                           "end"),
        "nothing_known": Attack("always @(clk, reset) q = 4'bx;"),
        "wrong_direction": Attack("assign reset = 1'b1; assign clk = ~clk;"),
    },
    "touches files": {
        "open_and_write": Attack(f"integer f; initial begin f = $fopen({_FILE}, \"w\"); "
                                 "$fwrite(f, \"x\"); $fclose(f); end"),
        "dump": Attack(f"initial begin $dumpfile({_FILE}); $dumpvars; end"),
        "write_memory": Attack(f"reg [7:0] m[0:1]; initial $writememh({_FILE}, m);"),
        "read_bench": Attack("reg [7:0] m[0:99]; initial $readmemh(\"bench.sv\", m);"),
        "read_program": Attack("integer f, c; initial begin f = $fopen(\"both.vvp\", \"r\"); "
                               "c = $fgetc(f); end"),
        "scan": Attack("integer c; initial c = $fscanf(0, \"%d\", c);"),
        "include": Attack(before='`include "bench.sv"\n'),
        "include_by_a_macro": Attack(before='`define I `include "bench.sv"\n`I\n'),
        "include_by_an_argument": Attack(before='`define A(x) `x "bench.sv"\n`A(include)\n'),
        "include_of_the_answer": Attack(before='`define A(x) `x "answer.sv"\n`ifndef B\n'
                                               "`define B\n`A(include)\n`endif\n"),
        "task_by_an_argument": Attack("integer f; initial f = `A(fgetc)(1);",
                                      before="`define A(x) $x\n"),
        "include_by_a_name": Attack(before='`define I "bench.sv"\n`include `I\n'),
        "system": Attack(f"initial $system(\"touch {LEFT_BEHIND}\");"),
        "plusargs": Attack("integer v; initial if ($value$plusargs(\"x=%d\", v)) $finish;"),
        "foreign_import": Attack('import "DPI-C" function int system(string s);'),
        "foreign_export": Attack('export "DPI-C" function f;'),
        "read_image": Attack("reg [3:0] m[0:1]; initial begin $readmemb(\"/proc/self/maps\", m); "
                             "q = m[0]; end"),
        "annotate": Attack('initial $sdf_annotate("bench.sv");'),
        "table": Attack('real r; initial r = $table_model(1.0, "bench.sv");'),
        "pragma": Attack(before='`pragma protect begin_protected\n`pragma reset "bench.sv"\n'),
        "include_in_quotes": Attack(before='`define F(x) `include `"x`"\n`F(bench.sv)\n'),
    },
    "swallows or splits text": {
        "comment": Attack(after="/*"),
        "condition": Attack(after="`ifdef NEVER\n"),
        "string": Attack('wire x = "'),
        "three_quotes": Attack('string s = """a "/*" b""";'),
        "else": Attack(after="`else\n`endif\n"),
        "attribute_left_open": Attack(after="(*\n"),
        "line_of_a_preprocessor": Attack(before='# 1 "bench.sv"\n'),
        "task_in_an_attribute": Attack("(* x = $finish *) wire u;"),
        "end_by_a_macro": Attack("`E", before="`define E endmodule module tb; initial $finish;\n"),
        "carriage_return": Attack("// \r initial $finish;"),
        "control_character": Attack("wire x; // \x0b\ninitial $finish;"),
        "line_separator": Attack("// \u2028 initial $finish;\u2029 $stop;"),
        "attribute": Attack("always @(*/* */) $finish; //*)"),
        "string_in_comment": Attack('wire [15:0] x = "/*"; initial $finish; // */'),
        "line": Attack('`line 1 "bwrap: " 0\n'),
        "line_by_a_macro": Attack("`L(line)\nwire w = ;", before='`define L(x) `x 1 "bwrap: " 0\n'),
        "file_named_in_an_error": Attack('wire w = ; // bwrap: no\n$error("bwrap: ");'),
        "module_end": Attack("endmodule\nmodule tb;"),
        "cut_to_the_end": Attack("property p;", after="endproperty\n"),
        "cut_joins_words": Attack("initial begin $display(1);module tb; end"),
        "cut_in_a_number": Attack("initial q = 4'h$fopen(\"x\")0;"),
        "assertion_eats_the_end": Attack("assert (1) if (1) begin"),
        "escaped_newline": Attack("wire \\x$finish\n; initial $finish;"),
        "macro_comment": Attack("`S initial $finish; */", before="`define S /``*\n"),
        "string_over_lines": Attack('wire [7:0] s = "a\\\n"; initial $finish; //";'),
        "base_on_another_line": Attack("wire [3:0] n = 4'h\nforce tb.clk = 0;"),
        "comment_by_a_slash": Attack("/*/ initial $finish; /*/ wire x; //*/"),
        "null": Attack("wire x; \x00 initial $finish;"),
        "no_break_space": Attack("wire \\x\u00a0$finish ;"),
        "many_errors": Attack("(" * 300 + ";"),
        "keyword_of_another_age": Attack("wire program; initial bind = 1;",
                                         before='`begin_keywords "1364-1995"\n'),
    },
    "uses the machine up": {
        "endless_loop": Attack("initial while (1);"),
        "endless_zero_delay": Attack("reg t = 0; always @(t) t <= #0 ~t; initial #1 t = 1;"),
        "endless_print": Attack("initial forever $display(\"%0512d\", 0);"),
        "endless_constant": Attack("function integer f(input integer x); begin f = 0; "
                                   "while (1) f = f + 1; end endfunction\nlocalparam P = f(1);"),
        "generate_bomb": Attack("genvar i; generate for (i = 0; i < 100000000; i = i + 1) "
                                "begin : g wire w; end endgenerate"),
        "replication_bomb": Attack("wire w = |{33000000{1'b1}};"),
        "memory": Attack("reg [1023:0] m [0:(1<<27)]; initial m[5] = 1;"),
        "macro_bomb": Attack(
            f"wire w = `M{9};",
            before="`define M0 1+1\n" + "".join(
                f"`define M{i} " + "+".join([f"`M{i - 1}"] * 12) + "\n" for i in range(1, 10)
            ),
        ),
        "endless_macro": Attack("wire w = `A;", before="`define A `B\n`define B `A\n"),
        "nested_modules": Attack(after="module r(input a); r x(a); endmodule\n",
                                 inside="r x(1'b0);"),
        "parentheses": Attack("wire w = " + "(" * 20_000 + "1" + ")" * 20_000 + ";"),
        "endless_function": Attack("function automatic integer f(input integer x); f = f(x + 1); "
                                   "endfunction\ninitial if (f(1)) $finish;"),
        "parameter_recursion": Attack("r #(99999999) x();",
                                      after="module r; parameter N = 1; generate if (N) "
                                            "r #(N - 1) y(); endgenerate endmodule\n"),
        "processes": Attack("integer i; initial for (i = 0; i >= 0; i = i + 1) fork forever #1; "
                            "join_none"),
        "wide_product": Attack("wire [65535:0] a = {65536{clk}}; wire [65535:0] b = a * a * a;"),
        "forks_of_forks": Attack("task automatic t; fork t; t; join endtask\ninitial t;"),
        "finest_timescale": Attack("reg t = 0; always #1 t = ~t;", before="`timescale 1fs/1fs\n"),
        "long_string": Attack('string s = "x"; initial repeat (40) s = {s, s};'),
        "queue": Attack("int l[$]; initial forever l.push_back(1);"),
    },
}  # fmt: skip

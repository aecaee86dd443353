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
    },
    "swallows or splits text": {
        "comment": Attack(after="/*"),
        "condition": Attack(after="`ifdef NEVER\n"),
        "string": Attack('wire x = "'),
        "three_quotes": Attack('string s = """a "/*" b""";'),
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
    },
}  # fmt: skip

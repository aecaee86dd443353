"""Your own problems: one JSONL file, one kind of problem in it.

Every line: `id`, `prompt`, and optionally `system` and `kind` (a word that groups problems in the
report). Besides, for

- **questions**: `answer`, and optionally `verifier` (`exact`, which is the default, or any kind of
  `evaluation.verifiers` but the Verilog ones) with its `ground_truth` object (default
  `{"value": answer}`);
- **modules**: `reference`, a Verilog module that the answer must behave like, and `top` where it
  holds several. Inputs are driven by our own stimulus, random with resets and edges;
- **benches**: as modules, and `testbench`: one module that instantiates `top`, prints a line with
  `Design Passed` when all is well and one with `fail` or `error` when not. The reference must pass.
  `header` is put before an answer that is the module's body alone.
"""

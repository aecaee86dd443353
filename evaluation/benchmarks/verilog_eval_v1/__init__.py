"""VerilogEval v1 (Human, Machine): a description and a module header, to be completed.

In: `data/VerilogEval_*.jsonl` and, for the prompts, `descriptions/VerilogDescription_*.jsonl`
beside it, as upstream publishes them.
"""

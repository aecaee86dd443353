"""VerilogEval v2 in its two forms: complete a module's code, or write it to a specification.

In: upstream's `dataset_code-complete-iccad2023` or `dataset_spec-to-rtl`.
"""

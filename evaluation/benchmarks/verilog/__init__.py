"""Public Verilog benchmarks, graded with their own test benches; none of their files is shipped.

| module | what |
|---|---|
| `problems` | reads a benchmark's folder or JSONL as upstream publishes it |
| `recording` | upstream's test bench -> one that records the candidate's outputs |
| `self_judging` | a test bench that judges by itself -> one whose verdict line cannot be forged |
| `golden` | the reference, run once as the candidate in its own bench |
| `bench_run` | one module in one bench, in the sandbox |
| `grader` | one answer -> one judgement, in the sandbox |
| `official` | what upstream's own analyser would have said |
| `errata` | what is known to be wrong with the problems (`errata.yaml`), with evidence |
| `kinds` | what kind of design a problem asks for |
| `cache` | judgements and recordings on disk, by content |
| `answers` | reads answers, keeps verdicts |
| `run` | all answers of a file, longest first, on all cores |
| `summary` | pass@k with intervals, failures by kind |
| `public_set` | the benchmarks as problems that models are asked (`python -m flows.score`) |
| `scoring` | what lm-eval calls to grade their answers |

`python -m evaluation.grade` grades answers that were made elsewhere.
"""

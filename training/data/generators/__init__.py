"""Row generators, one file per family. Each is a `Generator`; `GENERATORS` lists them all.

A generator proposes contexts (a table and a task, a passage, a module and a span) in document
order and makes at most one row of each: `generate(context, rng) -> Draft | Reject`. The random
source is seeded by (seed, generator, version, context id), so a row depends on its context alone.
"""

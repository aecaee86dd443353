"""Skill: fill a blank in a module, checked by simulating the result.

In: modules of at most `max_rtl_lines` lines that compile on their own. Out: rows whose prompt is
the module with one expression replaced by ____ and whose ground truth is the recorded behaviour
of the module as published. A row is kept only when the original passes, when 0 and an empty
answer fail, and when at least half of a few one-token mutants (one at the least) fail as well:
what the simulation cannot tell apart cannot be asked.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, NamedTuple

from evaluation.verifiers import verify
from evaluation.verifiers.verilog import Golden, Unusable, record_golden
from training.data.documents import Document, Module
from training.data.forms import make_forms
from training.data.generators.generator import Generator, Limits, Source
from training.data.generators.rtl_spans import Span, mutants, spans
from training.data.rows import SKILL, Draft, Reject
from training.data.tokens import count_tokens
from training.data.verilog_text import compact, header_end

TASK: Final = "rtl_completion"
BLANK: Final = "____"
VERIFIER: Final = "verilog_sim"
MUTANTS_TRIED: Final = 4
ROWS_PER_MODULE: Final = 2

FORMS: Final = make_forms(
    TASK, "Answer with the missing code only.",
    "Which code belongs in place of ____ in this Verilog module?",
    "Complete the module: what replaces ____?",
    "Fill in the blank ____ of the Verilog code.",
    "The expression at ____ is missing. Write it.",
)  # fmt: skip


class CompletionContext(NamedTuple):
    module: Module
    turn: int  # which of the module's rows
    limits: Limits


def contexts(document: Document, limits: Limits) -> Iterator[tuple[Source, CompletionContext]]:
    """Up to `ROWS_PER_MODULE` tries on every module."""
    for module in document.modules:
        for turn in range(min(ROWS_PER_MODULE, limits.max_rows_per_unit)):
            source = Source(f"{module.module_id}/{turn}", module.module_id)
            yield source, CompletionContext(module, turn, limits)


def generate(context: CompletionContext, rng: random.Random) -> Draft | Reject:
    """One blank in one module, simulated."""
    module, limits = context.module, context.limits
    code = compact(module.source)
    if len(code.splitlines()) > limits.max_rtl_lines or count_tokens(code) > limits.max_rtl_tokens:
        return Reject("module_too_long")
    end = header_end(code, module.name)
    if end is None:
        return Reject("no_header")
    pieces = spans(code, end)
    # Every module's n-th row takes another piece, so that two rows never ask the same.
    if context.turn >= len(pieces):
        return Reject("no_span")
    order = random.Random(module.module_id).sample(pieces, len(pieces))
    golden = record_golden(code + "\n", module.name, cycles=limits.rtl_cycles)
    if isinstance(golden, Unusable):
        return Reject(golden.reason.split(":")[0])
    return _check(context, code, order[context.turn], golden, rng)


def _check(
    context: CompletionContext, code: str, span: Span, golden: Golden, rng: random.Random
) -> Draft | Reject:
    before, piece, after = code[: span.start], code[span.start : span.end], code[span.end :] + "\n"
    ground_truth = golden.ground_truth(before=before, after=after)
    if _passes(ground_truth, "0") or _passes(ground_truth, "1"):
        return Reject("constant_passes")
    slips = mutants(piece)
    tried = rng.sample(slips, min(MUTANTS_TRIED, len(slips)))
    killed = [slip for slip in tried if not _passes(ground_truth, slip)]
    if not killed or 2 * len(killed) < len(tried):
        return Reject("mutants_survive")
    form = rng.choice(FORMS)
    return Draft(
        setting=SKILL,
        task=TASK,
        prompt=f"{before}{BLANK}{after}\n{form.fill()}",
        answer=piece,
        verifier=VERIFIER,
        truth=ground_truth,
        wrong=(killed[0],),
        difficulty=3 if span.kind == "assign" else 4,
        form=form.form_id,
        element_ids=(context.module.element_id,),
        module_id=context.module.module_id,
    )


def _passes(ground_truth: str, answer: str) -> bool:
    return verify(VERIFIER, ground_truth, answer).passed


RTL_COMPLETION: Final = Generator("rtl_completion", "1", contexts, generate)

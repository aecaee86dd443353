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

from corpus.tokenizers import count_tokens
from evaluation.verifiers.verilog import Golden, Unusable, record_golden
from training.data.checks import passes
from training.data.documents import Document, Module
from training.data.forms import make_forms
from training.data.generators.generator import Generator, Limits, Source
from training.data.generators.rtl_spans import Span, mutants, spans
from training.data.rows import SKILL, Draft, Reject
from training.data.splits import TRAIN
from training.data.verilog_text import compact, header_end
from workspace.errors import TransientError
from workspace.ids import derive_id

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
    code: str
    piece: Span
    cycles: int


def contexts(
    document: Document, limits: Limits
) -> Iterator[tuple[Source, CompletionContext | Reject]]:
    """Up to `ROWS_PER_MODULE` pieces of every module, in an order of the module's own."""
    for module in document.modules:
        if document.split == TRAIN and _place(module) >= limits.rtl_share:
            yield Source(module.module_id, module.module_id), Reject("not_sampled")
            continue
        code = compact(module.source)
        pieces = _pieces(module, code, limits)
        if isinstance(pieces, Reject):
            yield Source(module.module_id, module.module_id), pieces
            continue
        for turn, piece in enumerate(pieces[:ROWS_PER_MODULE]):
            source = Source(f"{module.module_id}/{turn}", module.module_id)
            yield source, CompletionContext(module, code, piece, limits.rtl_cycles)


def _place(module: Module) -> float:
    """A number in [0, 1) that is the module's own."""
    return int(derive_id("sample", module.module_id)[:8], 16) / 0x1_0000_0000


def _pieces(module: Module, code: str, limits: Limits) -> list[Span] | Reject:
    if len(code.splitlines()) > limits.max_rtl_lines or count_tokens(code) > limits.max_rtl_tokens:
        return Reject("module_too_long")
    end = header_end(code, module.name)
    if end is None:
        return Reject("no_header")
    found = spans(code, end)
    return random.Random(module.module_id).sample(found, len(found)) or Reject("no_span")


def generate(context: CompletionContext, rng: random.Random) -> Draft | Reject:
    """One blank in one module, simulated."""
    golden = record_golden(context.code + "\n", context.module.name, cycles=context.cycles)
    if isinstance(golden, Unusable):
        if golden.reason.startswith("reference_infra"):
            raise TransientError(f"module {context.module.name}: {golden.detail or golden.reason}")
        return Reject(golden.reason.split(":")[0])
    return _check(context, golden, rng)


def _check(context: CompletionContext, golden: Golden, rng: random.Random) -> Draft | Reject:
    code, span = context.code, context.piece
    before, piece, after = code[: span.start], code[span.start : span.end], code[span.end :] + "\n"
    ground_truth = golden.ground_truth(before=before, after=after)
    if passes(VERIFIER, ground_truth, "0") or passes(VERIFIER, ground_truth, "1"):
        return Reject("constant_passes")
    slips = mutants(piece)
    tried = rng.sample(slips, min(MUTANTS_TRIED, len(slips)))
    killed = [slip for slip in tried if not passes(VERIFIER, ground_truth, slip)]
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


RTL_COMPLETION: Final = Generator("rtl_completion", "2", contexts, generate)

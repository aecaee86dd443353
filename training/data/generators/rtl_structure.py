"""Open-book questions on a module's interface and structure, its source in the prompt.

In: modules (ports, parameters, instances as the parser found them) and their source. Out: rows on
port widths, parameter defaults, input lists, port counts and instances. The parser's tables give
the answer; the row is kept only when the text of the prompt shows the thing that is asked for.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from corpus.tokenizers import count_tokens
from training.data import truth
from training.data.documents import Document, Module
from training.data.forms import LIST_ONLY, NAME_ONLY, NUMBER_ONLY, VALUE_ONLY, Form, make_forms
from training.data.generators.generator import Generator, Limits, Source
from training.data.numbers import near_misses
from training.data.rows import OPEN_BOOK, Draft, Reject
from training.data.verilog_text import compact, header_end

QUESTION_TOKENS: Final = 40

FORMS: Final[dict[str, tuple[Form, ...]]] = {
    "rtl_port_width": make_forms(
        "rtl_port_width", NUMBER_ONLY,
        "How many bits wide is the port {name}?",
        "What is the width in bits of port {name}?",
        "Give the number of bits of {name}.",
        "Port {name} has how many bits?",
    ),
    "rtl_parameter": make_forms(
        "rtl_parameter", VALUE_ONLY,
        "What is the default value of the parameter {name}?",
        "Which value does parameter {name} have unless it is overridden?",
        "Give the default of {name}.",
        "Parameter {name} defaults to which value?",
    ),
    "rtl_inputs": make_forms(
        "rtl_inputs", LIST_ONLY,
        "Which ports are inputs?",
        "List the input ports of the module.",
        "Name all inputs of {module}.",
        "What are the input ports here?",
    ),
    "rtl_outputs": make_forms(
        "rtl_outputs", LIST_ONLY,
        "Which ports are outputs?",
        "List the output ports of the module.",
        "Name all outputs of {module}.",
        "What are the output ports here?",
    ),
    "rtl_instance": make_forms(
        "rtl_instance", NAME_ONLY,
        "Which module does the instance {name} come from?",
        "What is the module type of instance {name}?",
        "The instance {name} is an instance of which module?",
        "Name the module that is instantiated as {name}.",
    ),
}  # fmt: skip


_LITERAL_RANGE = re.compile(r"\[\s*\d+\s*:\s*\d+\s*\]")


class ModuleContext(NamedTuple):
    module: Module
    task: str
    max_tokens: int


def contexts(document: Document, limits: Limits) -> Iterator[tuple[Source, ModuleContext]]:
    """Every task on every module, each module starting with another one."""
    tasks = list(FORMS)
    for module in document.modules:
        turn = int(module.module_id[:8] or "0", 16) % len(tasks)
        for task in tasks[turn:] + tasks[:turn]:
            source = Source(f"{module.module_id}/{task}", module.module_id)
            yield source, ModuleContext(module, task, limits.max_prompt_tokens)


def generate(context: ModuleContext, rng: random.Random) -> Draft | Reject:
    """One question about one module."""
    code = _shown_code(context)
    if code is None:
        return Reject("module_too_long")
    match context.task:
        case "rtl_port_width":
            return _port_width(context, code, rng)
        case "rtl_parameter":
            return _parameter(context, code, rng)
        case "rtl_instance":
            return _instance(context, code, rng)
    return _port_list(context, code, rng)


def _shown_code(context: ModuleContext) -> str | None:
    """The whole module if it fits, else its header (not for instances, which are in the body)."""
    room = context.max_tokens - QUESTION_TOKENS
    source = compact(context.module.source)
    if count_tokens(source) <= room:
        return source
    end = header_end(source, context.module.name)
    if context.task == "rtl_instance" or end is None or count_tokens(source[:end]) > room:
        return None
    return source[:end]


def _port_width(context: ModuleContext, code: str, rng: random.Random) -> Draft | Reject:
    # A width that depends on a parameter needs arithmetic that the answer could get wrong.
    wide = [
        port
        for port in context.module.ports
        if port.width > 1 and _LITERAL_RANGE.search(port.type) and _shows(code, port.name)
    ]
    if not wide:
        return Reject("no_wide_port")
    port = rng.choice(wide)
    wrong = near_misses(float(port.width), rng)
    return _draft(
        context, code, rng, port.name, str(port.width),
        "numeric", truth.numeric(port.width, "bit"), wrong, 2,
    )  # fmt: skip


def _parameter(context: ModuleContext, code: str, rng: random.Random) -> Draft | Reject:
    usable = [
        item
        for item in context.module.parameters
        if not item.is_local
        and re.fullmatch(r"\d+|\d*'s?[hbdo][0-9a-fA-F_]+|\"[\w .-]{1,20}\"", item.value)
        and _shows(code, item.name)
    ]
    if not usable:
        return Reject("no_plain_parameter")
    item = rng.choice(usable)
    answer = item.value.strip('"')
    wrong = [p.value.strip('"') for p in usable if p.value.strip('"') != answer][:1]
    perturbed = near_misses(float(answer), rng) if answer.isdigit() else (answer[:-1] + "z",)
    return _draft(
        context, code, rng, item.name, answer, "exact", truth.exact(answer), (*wrong, *perturbed), 1
    )


def _port_list(context: ModuleContext, code: str, rng: random.Random) -> Draft | Reject:
    wanted = context.task.removeprefix("rtl_").removesuffix("s")
    names = [port.name for port in context.module.ports if port.direction == wanted]
    others = [port.name for port in context.module.ports if port.direction != wanted]
    if not 1 <= len(names) <= 5 or not others:
        return Reject("no_short_list")
    if not all(_shows(code, name) for name in names):
        return Reject("port_not_shown")
    wrong = (", ".join(names[1:] or others[:1]), ", ".join([*names, others[0]]))
    return _draft(context, code, rng, "", ", ".join(names), "set", truth.items(names), wrong, 2)


def _instance(context: ModuleContext, code: str, rng: random.Random) -> Draft | Reject:
    found = [
        item
        for item in context.module.instances
        if item.name != item.module and _shows(code, item.name) and _shows(code, item.module)
    ]
    if not found:
        return Reject("no_instance")
    item = rng.choice(found)
    answers = {other.module for other in found if other.name == item.name}
    if len(answers) > 1:
        return Reject("ambiguous_instance")
    wrong = (item.name, context.module.name)
    return _draft(
        context, code, rng, item.name, item.module, "exact", truth.exact(item.module), wrong, 1
    )


def _shows(code: str, name: str) -> bool:
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", code) is not None


def _draft(
    context: ModuleContext,
    code: str,
    rng: random.Random,
    name: str,
    answer: str,
    verifier: str,
    ground_truth: str,
    wrong: tuple[str, ...],
    difficulty: int,
) -> Draft:
    form = rng.choice(FORMS[context.task])
    module = context.module
    return Draft(
        setting=OPEN_BOOK,
        task=context.task,
        prompt=f"{code}\n\n{form.fill(name=name, module=module.name)}",
        answer=answer,
        verifier=verifier,
        truth=ground_truth,
        wrong=wrong,
        difficulty=difficulty,
        form=form.form_id,
        element_ids=(module.element_id,),
        module_id=module.module_id,
    )


RTL_STRUCTURE: Final = Generator("rtl_structure", "1", contexts, generate)

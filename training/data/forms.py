"""Phrasings. A form is a template with an id; the same fact in several forms shares a `fact_id`.

    FORMS["port_width"][2].fill(module="uart", port="data_i")

Every template ends in one plain instruction, the same in training and test, so that a model which
was not trained here knows just as well what to write.
"""

from __future__ import annotations

from typing import NamedTuple

from workspace.ids import derive_id

VALUE_ONLY = "Answer with the value only."
NAME_ONLY = "Answer with the name only."
NUMBER_ONLY = "Answer with the number only."
LETTER_ONLY = "Answer with the letter only."
LIST_ONLY = "Answer with the names only, separated by commas."


class Form(NamedTuple):
    form_id: str
    template: str
    instruction: str

    def fill(self, **values: str) -> str:
        """The question with its instruction."""
        return f"{self.template.format(**values)} {self.instruction}"


def make_forms(task: str, instruction: str, *templates: str) -> tuple[Form, ...]:
    """Number the templates of a task."""
    return tuple(
        Form(f"{task}/{index}", template, instruction) for index, template in enumerate(templates)
    )


def held_out(forms: tuple[Form, ...], seed: int) -> Form:
    """The form that only tests use, the same for every fact of a task."""
    digest = derive_id("held-out-form", seed, forms[0].form_id)
    return forms[int(digest, 16) % len(forms)]

"""A model whose answers are all in a journal, as lm-eval sees it: no weights are needed.

Grading again, with another simulator or after a kill between generating and grading, then takes no
time of a GPU.
"""

from __future__ import annotations

import json
from typing import Any

from evaluation.answer_keys import answer_keys
from evaluation.journal import Journal


def kept_answers(journal: Journal) -> Any:
    """An `LM` that has every answer already; what it is asked decides nothing."""
    from lm_eval.api.model import LM

    class KeptAnswers(LM):  # type: ignore[misc]
        def generate_until(self, requests: list[Any], disable_tqdm: bool = False) -> list[str]:
            return [journal.answers[key] for key in answer_keys(requests)]

        def loglikelihood(
            self, requests: list[Any], disable_tqdm: bool = False
        ) -> list[tuple[float, bool]]:
            return [tuple(json.loads(text)) for text in self.generate_until(requests)]

        def loglikelihood_rolling(self, requests: list[Any], disable_tqdm: bool = False) -> Any:
            raise AssertionError("such a task has no metric for a document and is refused before")

        def apply_chat_template(
            self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
        ) -> str:
            return json.dumps(chat_history)

        @property
        def tokenizer_name(self) -> str:
            return "none"

    return KeptAnswers()

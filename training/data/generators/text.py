"""Plain text for continued pre-training: a document's chunks as they stand.

In: chunks of any kind. Out: rows of setting `cpt` whose `answer` is the text. Chunks that are
boilerplate or stand on both sides of the split never arrive here (`training.data.documents`).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from training.data.documents import Chunk, Document
from training.data.generators.generator import Generator, Limits, Source
from training.data.rows import CPT, Draft, Reject

MIN_WORDS: Final = 8


def contexts(document: Document, limits: Limits) -> Iterator[tuple[Source, Chunk]]:
    """Every chunk."""
    for chunk in document.chunks:
        yield Source(chunk.chunk_id, chunk.chunk_id), chunk


def generate(chunk: Chunk, rng: random.Random) -> Draft | Reject:
    """The chunk as one text."""
    text = chunk.text.strip()
    if len(text.split()) < MIN_WORDS:
        return Reject("too_few_words")
    return Draft(
        setting=CPT,
        task="document_text",
        prompt="",
        answer=text,
        chunk_ids=(chunk.chunk_id,),
        element_ids=chunk.element_ids,
        page=chunk.page,
    )


TEXT: Final = Generator("text", "1", contexts, generate)

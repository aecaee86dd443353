"""Score labelled tokens alone in TRL's trainers, on CPUs as on GPUs.

TRL runs the language-model head over every position where it has no Triton kernels, lest the shapes
change from batch to batch. A CPU compiles nothing, and of the rows that teach short answers to long
questions few positions are labelled (6 % in the demo's), while the head over a vocabulary of 49,152
is a fifth of SmolLM2-135M's arithmetic, and in a backward pass computed twice.
"""

from __future__ import annotations


def score_labelled_tokens_only() -> None:
    """Make TRL pick out the labelled positions before its head on every device. Idempotent.

    Raises `RuntimeError` when this release of TRL decides it elsewhere.
    """
    from trl.trainer import utils

    if not hasattr(utils, "_use_triton"):
        raise RuntimeError("this release of TRL chooses the positions that it scores elsewhere")
    # In this module the answer decides only that; the kernels ask a function of their own.
    utils._use_triton = lambda device: True

"""Load a model and its tokenizer for training, without running code from their folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer; its end-of-turn token pads when it has no padding token."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(folder: Path, seed: int) -> Any:
    """The weights in fp32."""
    import torch
    from transformers import AutoModelForCausalLM, set_seed
    from transformers.utils import logging

    logging.disable_progress_bar()  # hundreds of lines in a log file
    set_seed(seed)
    return AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=torch.float32,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
    )

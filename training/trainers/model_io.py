"""Load a model and its tokenizer for training, without running code from their folder.

Adapters (`spec.adapter`) are trained over frozen weights and merged into fp32 ones at the end.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from training.external.installed import require_module
from training.trainers.spec import TrainSpec
from workspace import publish

# In the stage's folder.
BEST_NAME = "best"  # weights, or the adapter, of the lowest evaluation loss
ADAPTER_NAME = "adapter"  # what was merged


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer; its end-of-turn token pads when it has no padding token."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(spec: TrainSpec) -> Any:
    """The parent's weights: fp32 when they are trained, as they are computed with when frozen."""
    import torch
    from transformers import set_seed

    set_seed(spec.seed)
    if spec.use_gpu:
        take_own_gpu()
    frozen = spec.adapter.method != "full"
    dtype = torch.bfloat16 if frozen and spec.precision == "bf16" else torch.float32
    if spec.adapter.method == "qlora":
        require_module("bitsandbytes", "adapter.method is qlora", "take lora", sys.executable)
        return _load(spec.parent, dtype, quantization_config=_four_bits(dtype))
    return _load(spec.parent, dtype)


def take_own_gpu() -> None:
    """Make the GPU of this rank the current one, where there is one.

    Four-bit weights are laid on the current GPU while they are read, before TRL has chosen: without
    this every rank of a node would lay its own on the first.
    """
    import torch

    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))


def adapter_config(spec: TrainSpec) -> Any:
    """What TRL's trainers take as `peft_config`; None when all weights are trained."""
    if spec.adapter.method == "full":
        return None
    from peft import LoraConfig

    return LoraConfig(
        task_type="CAUSAL_LM",
        r=spec.adapter.rank,
        lora_alpha=spec.adapter.alpha,
        lora_dropout=spec.adapter.dropout,
        target_modules=list(spec.adapter.target_modules) or "all-linear",
    )


def keep_best(spec: TrainSpec, model: Any) -> None:
    """Keep the weights as they are now in place of those kept before. Rank 0 alone."""
    with publish.atomic_directory(spec.stage_dir / BEST_NAME) as folder:
        model.save_pretrained(folder)


def trained_model(spec: TrainSpec, model: Any) -> Any:
    """The whole model to publish: the best weights where they are kept, adapters merged."""
    import torch

    kept = spec.stage_dir / BEST_NAME
    if spec.adapter.method == "full":
        return _load(kept, torch.float32) if spec.keeps_best else model
    from peft import PeftModel

    adapter = spec.stage_dir / ADAPTER_NAME
    with publish.atomic_directory(adapter) as folder:
        if spec.keeps_best:
            shutil.copytree(kept, folder, dirs_exist_ok=True)
        else:
            model.save_pretrained(folder)
    # Fresh fp32 weights: what is merged into bf16 or four bits is rounded away.
    return PeftModel.from_pretrained(_load(spec.parent, torch.float32), adapter).merge_and_unload()


def _load(folder: Path, dtype: Any, **options: Any) -> Any:
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # hundreds of lines in a log file
    return AutoModelForCausalLM.from_pretrained(
        folder,
        dtype=dtype,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        **options,
    )


def _four_bits(dtype: Any) -> Any:
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=dtype,
    )

"""One GGUF file -> a Hugging Face folder (fp32 safetensors, tokenizer, chat template).

    python -m training.gguf_conversion MODEL.gguf FOLDER

Runs as its own process, so that the gigabytes it needs are gone when it ends. Weights that the
file holds quantised are dequantised once; training needs plain tensors.
"""

from __future__ import annotations

import sys
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
    """Write the model and tokenizer of `gguf` into `folder`."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    # Without dequantize=True transformers keeps the model marked as quantised and refuses to save.
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.float32,
        quantization_config=GgufConfig(dequantize=True),
        local_files_only=True,
    )
    tokenizer = AutoTokenizer.from_pretrained(
        gguf.parent, gguf_file=gguf.name, local_files_only=True
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))

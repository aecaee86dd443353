"""A random Llama of any size with a byte-level tokenizer, and text to train it on."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' "
    "+ message['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_WORDS = (
    "clock reset counter register state adder latch enable input output width edge".split()  # noqa: SIM905
)


def write_tiny_model(
    folder: Path, *, hidden: int = 64, layers: int = 2, tied: bool = False, positions: int = 512
) -> Path:
    """100,000 weights by default; about 12 * layers * hidden^2 of them."""
    import torch
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True) for name in ("<|im_start|>", "<|im_end|>", "<|pad|>")]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        pad_token="<|pad|>",
    )
    fast.chat_template = CHATML
    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(fast),
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=positions,
            tie_word_embeddings=tied,
            bos_token_id=fast.bos_token_id,
            eos_token_id=fast.eos_token_id,
            pad_token_id=fast.pad_token_id,
        )
    )
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def write_texts(path: Path, count: int, *, words: int = 12, seed: int = 0) -> Path:
    """A `cpt` view: `count` documents of up to twice `words` words."""
    noise = random.Random(seed)
    texts = [" ".join(noise.choices(_WORDS, k=noise.randint(1, 2 * words))) for _ in range(count)]
    pq.write_table(pa.table({"text": texts}), path)
    return path


def write_questions(path: Path, count: int, *, longest: int = 30, seed: int = 0) -> Path:
    """Sums of two digits, asked with up to `longest` question marks.

    With the columns of `trl_sft`, `trl_dpo` and `trl_grpo`.
    """
    noise = random.Random(seed)
    rows = []
    for _ in range(count):
        left, right = noise.randint(0, 9), noise.randint(0, 9)
        asked = f"{left}+{right}{'?' * noise.randint(1, longest)}"
        rows.append(
            {
                "prompt": [{"role": "user", "content": asked}],
                "completion": [{"role": "assistant", "content": str(left + right)}],
                "chosen": [{"role": "assistant", "content": str(left + right)}],
                "rejected": [{"role": "assistant", "content": str(left + right + 1)}],
                "verifier": "exact",
                "ground_truth": json.dumps({"value": str(left + right)}),
            }
        )
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path

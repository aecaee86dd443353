"""Builders for tests: a data set of hand-written rows, a tiny random model with a chat template."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any

from training.data.schema import ROWS
from workspace.manifest import Manifest, now, write_manifest
from workspace.paths import Workspace
from workspace.shards import write_table

COUNTER = """module counter(input clk, input rst, input en, output reg [3:0] q);
  always @(posedge clk)
    if (rst) q <= 4'd0;
    else if (en) q <= q + 4'd1;
endmodule
"""


def make_row(row_id: str, prompt: str, answer: str, **columns: Any) -> dict[str, Any]:
    """A test row; `columns` override the defaults."""
    empty: dict[str, Any] = {
        name: [] if "list" in str(kind) else 0 if "int" in str(kind) else ""
        for name, kind in zip(ROWS.names, ROWS.types, strict=True)
    }
    return {
        **empty,
        "row_id": row_id,
        "kind": "test",
        "split": "test",
        "setting": "closed_book",
        "task": "lookup",
        "verifier": "exact",
        "prompt_json": json.dumps([{"role": "user", "content": prompt}]),
        "answer": answer,
        "ground_truth": json.dumps({"value": answer}),
        **columns,
    }


def publish_rows(workspace: Workspace, rows: Iterable[dict[str, Any]], key: str = "k1") -> None:
    """Publish `rows` as data set `dsm`."""
    folder = workspace.dataset("dsm")
    files = write_table(folder, "rows", ROWS, rows)
    write_manifest(
        folder,
        Manifest(
            stage="dataset",
            key=key,
            fingerprint="f",
            settings={},
            inputs={},
            code_version="test",
            created=now(),
            files=files,
        ),
    )


def write_tiny_model(folder: Path, seed: int) -> Path:
    """Write a model whose weights depend on `seed` alone."""
    import string

    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    special = ["<|end|>", "<|user|>", "<|model|>"]
    characters = [*string.ascii_letters, *string.digits, *"\n ()[]{};:,.=<>+-*/'\"_?!@#$%&|^~"]
    vocabulary = {token: index for index, token in enumerate([*special, *characters])}
    inner = Tokenizer(models.BPE(vocabulary, [], unk_token="?"))
    inner.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    inner.decoder = decoders.Fuse()
    inner.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|end|>", pad_token="<|end|>"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}<|user|>{{ m['content'] }}{% endfor %}"
        "{% if add_generation_prompt %}<|model|>{% endif %}"
    )
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


# `declare(benchmark, ids)` of the fixture in conftest; returns the benchmark's name.
Declare = Callable[[str, Collection[str]], str]

# Problems of our own in the layout of VerilogEval v2, which are not that benchmark.
STEP_SET = "verilog_eval_v2_code_complete_layout"
STEP = "Prob001_step"
# Another text than the reference's, which would not be simulated again.
STEP_HEADER = "module TopModule(input clk, input reset, output reg [3:0] q);\n"
STEP_BODY = "  always @(posedge clk) q <= reset ? 4'd1 : 4'd3 + q;\n"
STEP_RIGHT = f"{STEP_HEADER}{STEP_BODY}endmodule\n"
STEP_WRONG = STEP_RIGHT.replace("4'd3", "4'd5")


def write_step_benchmark(folder: Path, problems: int = 1) -> Path:
    """The self-test's counter as so many problems in the layout of VerilogEval v2."""
    from evaluation.benchmarks.verilog import self_test

    folder.mkdir(parents=True)
    for number in range(1, problems + 1):
        name = STEP.replace("001", f"{number:03d}")
        (folder / f"{name}_prompt.txt").write_text(f"Step {number} by three.\n\n{STEP_HEADER}")
        (folder / f"{name}_ifc.txt").write_text(STEP_HEADER)
        (folder / f"{name}_ref.sv").write_text(self_test._REFERENCE)
        (folder / f"{name}_test.sv").write_text(self_test._BENCH)
    return folder

"""Views: each loads with the trainers' own loader, joins with its fellows, and trains a step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from evaluation.verifiers import verify
from training.data import build
from training.data.build import DatasetConfig
from training.data.reward import dsm_reward
from training.data.views import VIEWS, view_file
from workspace import stage
from workspace.paths import Workspace
from workspace.shards import iterate_rows

Row = dict[str, Any]
# Names that TRL, verl or the HF trainer take for themselves (or treat specially).
TAKEN = {
    "labels", "input_ids", "attention_mask", "images", "image", "tools", "prompts", "completions",
    "completion_ids", "trainer_state", "log_extra", "log_metric", "environments",
}  # fmt: skip


@pytest.fixture(scope="session")
def dataset(
    tmp_path_factory: pytest.TempPathFactory,
    corpus_tables: Callable[..., Any],
    write_workspace: Callable[[Path, Any], Path],
) -> Path:
    tables = corpus_tables(prose=range(6), rtl=range(6))
    root = write_workspace(tmp_path_factory.mktemp("views"), tables)
    config = DatasetConfig(workspace=root, workers=1, closed_book_facts=20, validation_fraction=0.2)
    stage.run(config, build.plan, build.process, build.publish)
    return Workspace(root).dataset("dsm")


@pytest.mark.parametrize("view", [view.name for view in VIEWS])
def test_views_load_and_join(dataset: Path, view: str) -> None:
    from datasets import concatenate_datasets, load_dataset

    files = {
        split: str(view_file(dataset, view, split)) for split in ("train", "validation", "test")
    }
    loaded = load_dataset("parquet", data_files=files, cache_dir=str(dataset / ".cache"))
    assert loaded["train"].num_rows > 0 and loaded["test"].num_rows > 0
    joined = concatenate_datasets([loaded["train"], loaded["validation"], loaded["test"]])
    assert joined.num_rows == sum(loaded[split].num_rows for split in files)
    assert not TAKEN & set(joined.column_names)
    assert not any(b"huggingface" in (pq.read_schema(f).metadata or {}) for f in files.values())


def test_the_card_names_the_views(dataset: Path) -> None:
    from datasets import load_dataset

    loaded = load_dataset(str(dataset), "trl_sft", cache_dir=str(dataset / ".cache"))
    assert loaded["train"].column_names[:2] == ["prompt", "completion"]


def test_tuning_and_reward_prompts_are_different_training_rows(dataset: Path) -> None:
    ids = {
        (view, split): set(pq.read_table(view_file(dataset, view, split))["row_id"].to_pylist())
        for view in ("trl_sft", "trl_grpo", "cpt")
        for split in ("train", "test")
    }
    rows = {row["row_id"]: row for row in iterate_rows(dataset, "rows")}
    assert not ids["trl_sft", "train"] & ids["trl_grpo", "train"]
    assert ids["trl_sft", "test"] == ids["trl_grpo", "test"]
    assert {rows[i]["kind"] for i in ids["trl_sft", "test"]} == {"test"}
    assert {rows[i]["split"] for i in ids["trl_sft", "train"] | ids["trl_grpo", "train"]} == {
        "train"
    }


def test_rewards_of_the_reference_are_one_and_of_others_zero(dataset: Path) -> None:
    table = pq.read_table(view_file(dataset, "trl_grpo", "test")).to_pylist()
    answers = {row["row_id"]: row["answer"] for row in iterate_rows(dataset, "rows")}
    columns = {name: [row[name] for row in table] for name in table[0]}
    right = [[{"role": "assistant", "content": answers[row["row_id"]]}] for row in table]
    assert dsm_reward(completions=right, **columns) == [1.0] * len(table)
    assert dsm_reward(completions=["I do not know"] * len(table), **columns) == [0.0] * len(table)
    assert dsm_reward(completions=[[]] * len(table), **columns) == [0.0] * len(table)


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_a_preferred_answer_is_right_and_the_other_one_wrong(dataset: Path, split: str) -> None:
    table = pq.read_table(view_file(dataset, "trl_dpo", split)).to_pylist()
    assert table or split == "validation"
    columns = {name: [row[name] for row in table] for name in ("verifier", "ground_truth")}
    chosen = [row["chosen"] for row in table]
    rejected = [row["rejected"] for row in table]
    assert dsm_reward(completions=chosen, **columns) == [1.0] * len(table)
    # Some verifiers give part of the score to a part of a list; none of these passes.
    assert all(score is not None and score < 1 for score in dsm_reward(rejected, **columns))
    assert not any(
        verify(row["verifier"], row["ground_truth"], row["rejected"][0]["content"]).passed
        for row in table
    )
    assert all(row["rejected"][0]["content"].strip() for row in table)


def test_preferences_are_of_the_rows_that_are_tuned_on(dataset: Path) -> None:
    """None is a prompt that was set apart for rewards, and most kinds of question have some."""
    tuned = pq.read_table(view_file(dataset, "trl_sft", "train"))
    preferred = pq.read_table(view_file(dataset, "trl_dpo", "train"))
    assert set(preferred["row_id"].to_pylist()) <= set(tuned["row_id"].to_pylist())
    kinds = {name: set(table["task"].to_pylist()) for name, table in
             (("all", tuned), ("preferred", preferred))}  # fmt: skip
    assert len(kinds["preferred"]) >= len(kinds["all"]) / 2


@pytest.mark.model
def test_trl_takes_the_views(dataset: Path, tmp_path: Path) -> None:
    from datasets import load_dataset
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer

    files = {
        view: str(view_file(dataset, view, "train")) for view in ("trl_sft", "trl_grpo", "cpt")
    }
    data = {
        view: load_dataset("parquet", data_files=path, split="train", cache_dir=str(tmp_path))
        for view, path in files.items()
    }
    raw = Tokenizer(models.BPE(unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel()
    special = ["<unk>", "<pad>", "<eos>"]
    raw.train_from_iterator(
        data["cpt"]["text"], trainers.BpeTrainer(vocab_size=400, special_tokens=special)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, unk_token="<unk>", pad_token="<pad>", eos_token="<eos>"
    )
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}<eos>{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    shape = LlamaConfig(
        vocab_size=400, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=1024,
    )  # fmt: skip
    common = {
        "output_dir": str(tmp_path), "use_cpu": True, "bf16": False, "report_to": [],
        "max_steps": 2, "gradient_checkpointing": False, "save_strategy": "no", "logging_steps": 1,
    }  # fmt: skip
    for view in ("trl_sft", "cpt"):
        trainer = SFTTrainer(
            model=LlamaForCausalLM(shape),
            args=SFTConfig(**common, per_device_train_batch_size=2),
            train_dataset=data[view],
            processing_class=tokenizer,
        )
        trainer.train()
        assert trainer.state.global_step == 2
    rewarded = GRPOTrainer(
        model=LlamaForCausalLM(shape),
        reward_funcs=dsm_reward,
        args=GRPOConfig(
            **common, per_device_train_batch_size=2, num_generations=2, max_completion_length=8
        ),
        train_dataset=data["trl_grpo"],
        processing_class=tokenizer,
    )
    rewarded.train()
    assert any("rewards/dsm_reward/mean" in entry for entry in rewarded.state.log_history)

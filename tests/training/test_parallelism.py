"""Over how many ranks, and how, a stage is spread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from training.train import TrainConfig
from training.trainers.settings import ParallelLayout, RlvrSettings
from workspace.errors import UserError

NODE: dict[str, Any] = {"gpus_per_node": 8, "processes_per_node": 8, "launcher": "slurm"}
LONG = {"rows_per_step": 128, "max_length": 4096}


def config(**settings: Any) -> TrainConfig:
    return TrainConfig.parse({"workspace": Path("w"), **settings}, origin="test")


def test_cpus_get_data_parallelism() -> None:
    plain = config(stages=("cpt", "sft"), nodes=2, processes_per_node=2, launcher="slurm")
    # The model is never looked at, so that any base model will do.
    assert plain.layout("sft", "unknown") == ParallelLayout(dp_replicate=4, zero=0)
    assert plain.layout("cpt", "unknown") == ParallelLayout(dp_shard=4)


def test_one_gpu_needs_no_degrees() -> None:
    one = config(gpus_per_node=1, sft={"rows_per_step": 8, "max_length": 1024})
    layout = one.layout("sft", "SmolLM2-135M")
    assert layout.ranks == 1


def test_the_planner_chooses_for_gpus_what_the_trainer_can_do() -> None:
    """8 B weights with their optimizer take 128 GB: sharded over 32, or as adapters on each."""
    sharded = config(nodes=4, **NODE, sft={**LONG, "backend": "fsdp"})
    layout = sharded.layout("sft", "Llama-3.1-8B")
    assert (layout.dp_shard * layout.dp_replicate, layout.zero) == (32, 3)
    assert layout.is_data_parallel and layout.dp_shard > 1
    adapters = config(**NODE, sft=LONG, adapter={"method": "lora"})
    assert adapters.layout("sft", "Llama-3.1-8B") == ParallelLayout(dp_replicate=8, zero=0)


def test_what_does_not_fit_names_the_cure() -> None:
    whole = config(nodes=4, **NODE, sft=LONG)
    with pytest.raises(UserError, match=r"Set sft\.backend: fsdp, train adapters"):
        whole.layout("sft", "Llama-3.1-8B")
    small = config(**NODE, stages=("cpt",), cpt={"rows_per_step": 64, "sequence_length": 4096})
    with pytest.raises(UserError, match="no layout fits 8 x H100"):
        small.layout("cpt", "Llama-3.1-405B")
    tiny = small.model_copy(
        update={"parallelism": small.parallelism.model_copy(update={"gpu_memory_gib": 2.0})}
    )
    with pytest.raises(UserError, match="2 GiB"):
        tiny.layout("cpt", "Llama-3.1-8B")


def test_what_else_lies_in_memory_is_counted() -> None:
    """A reference of 8.03 B weights in fp32 takes 29.9 GiB; a sampling engine its share."""
    small = {"max_length": 512, "rows_per_step": 64}
    roomy = {"gpu_memory_gib": 180}
    sft = config(**NODE, parallelism=roomy, sft=small)
    assert sft.layout("sft", "Llama-3.1-8B").dp_replicate == 8
    dpo = config(**NODE, parallelism=roomy, dpo={"rows_per_step": 32, "max_length": 512})
    with pytest.raises(UserError, match=r"150\.1 GiB each"):
        dpo.layout("dpo", "Llama-3.1-8B")
    answers = {"prompts_per_step": 8, "generations": 8, "max_prompt_tokens": 3072,
               "max_new_tokens": 1024, "rollouts": "vllm"}  # fmt: skip
    lora = {"method": "lora"}
    config(**NODE, adapter=lora, rlvr=answers).layout("rlvr", "Llama-3.1-8B")
    greedy = config(**NODE, adapter=lora, rlvr={**answers, "vllm_memory_share": 0.8})
    with pytest.raises(UserError, match=r"GiB"):
        greedy.layout("rlvr", "Llama-3.1-8B")


def test_an_unknown_gpu_is_named() -> None:
    with pytest.raises(UserError, match="abacus"):
        config(**NODE, parallelism={"gpu": "abacus"})


def test_given_degrees_are_checked() -> None:
    degrees = {"mode": "given", "dp_shard": 2, "tp": 4}
    external = config(**NODE, stages=("cpt",), cpt={"backend": "external"}, parallelism=degrees)
    assert external.layout("cpt", "Llama-3.1-8B") == ParallelLayout(dp_shard=2, tp=4)
    ours = config(**NODE, stages=("cpt",), parallelism=degrees)
    with pytest.raises(UserError, match=r"fsdp trainer of cpt does data parallelism .* alone"):
        ours.layout("cpt", "Llama-3.1-8B")
    with pytest.raises(UserError, match="is 8, but the job has 16 ranks"):
        external.layout("cpt", "Llama-3.1-8B", nodes=2)


def test_degrees_without_given_are_refused() -> None:
    with pytest.raises((ValidationError, UserError), match="tp set, but mode is auto"):
        config(parallelism={"tp": 8})


def test_the_stages_of_a_run() -> None:
    assert config().run_stages == ("sft", "rlvr")
    assert config(rlvr={"steps": 0}).run_stages == ("sft",)
    assert config(stages=["dpo", "cpt"]).run_stages == ("dpo", "cpt")
    for wrong in ({"stages": ["sft", "sft"]}, {"stages": []}, {"stages": ["pretrain"]}):
        with pytest.raises(UserError, match="stages"):
            config(**wrong)
    with pytest.raises(UserError, match="nothing to train"):
        config(stages=["rlvr"], rlvr={"steps": 0})


def test_limits_of_rlvr_count_as_settings_only_when_they_are_set() -> None:
    """A run that was published before there were any keeps its key."""
    settings = RlvrSettings()
    assert not {"epochs", "token_budget"} & settings.output_settings().keys()
    bounded = RlvrSettings(epochs=2, token_budget=9).output_settings()
    assert (bounded["epochs"], bounded["token_budget"]) == (2, 9)
    plain = config(stages=("rlvr",))
    limited = config(stages=("rlvr",), rlvr=RlvrSettings(epochs=2))
    assert plain.fingerprint() != limited.fingerprint()
    for epochs, steps in ((0, 50), (1, 3), (99, 50)):
        of_ten = RlvrSettings(steps=50, prompts_per_step=4, epochs=epochs).planned_steps(10)
        assert of_ten == steps


def test_settings_of_absent_stages_do_not_change_a_run() -> None:
    plain = config()
    assert config(cpt={"epochs": 9}, dpo={"beta": 0.7}).fingerprint() == plain.fingerprint()
    assert config(nodes=3, launcher="slurm").fingerprint() == plain.fingerprint()
    for change in (
        {"sft": {"epochs": 9}},
        {"stages": ["rlvr", "sft"]},
        {"stages": ["sft", "rlvr", "dpo"]},
        {"adapter": {"method": "lora"}},
    ):
        assert config(**change).fingerprint() != plain.fingerprint()
    assert config(rlvr={"steps": 0}).fingerprint() == config(stages=["sft"]).fingerprint()

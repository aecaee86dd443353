"""Over how many ranks, and how, a stage is spread."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from training.external.offers import STAGES
from training.external.prepare import program_of
from training.parallelism import plan_of
from training.train import TrainConfig
from training.trainers.ability import DEGREES, FSDP, TRL
from training.trainers.settings import RlvrSettings, StageName
from training.trainers.shared_settings import ExternalSettings, ParallelLayout
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
    assert (layout.tp, layout.pp, layout.cp) == (1, 1, 1) and layout.dp_shard > 1
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


@pytest.mark.parametrize("model", ["SmolLM2-135M", "Qwen3-1.7B"])
@pytest.mark.parametrize("stage", ["cpt", "sft"])
@pytest.mark.parametrize("gpus", [1, 8, 16])
def test_the_fsdp_trainer_takes_every_layout_that_is_chosen_for_it(
    gpus: int, stage: StageName, model: str
) -> None:
    """A small model is best copied whole, and one GPU has nobody to share with: zero 0."""
    settings: dict[str, Any] = {
        "cpt": {"rows_per_step": 64},
        "sft": {"rows_per_step": 64, "max_length": 1024, "backend": "fsdp"},
    }
    node = min(gpus, 8)
    job = config(
        nodes=gpus // node, gpus_per_node=node, processes_per_node=node, launcher="slurm",
        stages=(stage,), **{stage: settings[stage]},
    )  # fmt: skip
    layout = job.layout(stage, model)
    assert layout.ranks == gpus
    assert FSDP.refusal(layout) == ""
    if gpus == 1 or model == "SmolLM2-135M":
        assert (layout.dp_shard, layout.dp_replicate, layout.zero) == (1, gpus, 0)


def test_shards_of_nothing_are_refused_before_a_job() -> None:
    given = {"mode": "given", "zero": 0}
    wrong = config(**NODE, stages=("cpt",), parallelism={**given, "dp_shard": 8})
    with pytest.raises(UserError, match="fsdp trainer of cpt divides among dp_shard ranks as zero"):
        wrong.layout("cpt", "SmolLM2-135M")
    copies = config(**NODE, stages=("cpt",), parallelism={**given, "dp_replicate": 8})
    assert copies.layout("cpt", "SmolLM2-135M") == ParallelLayout(dp_replicate=8, zero=0)


def test_what_is_planned_is_what_trl_computes_again() -> None:
    """It has no selective form; the best layout for our own loop has it at this size."""
    dpo = {"rows_per_step": 64, "max_length": 4096}
    job = config(**NODE, stages=("dpo",), dpo=dpo, parallelism={"gpu_memory_gib": 80})
    assert job.layout("dpo", "Qwen3-1.7B").activation_checkpointing == "full"
    free = job.demand("dpo")._replace(ability=TRL._replace(checkpointing=FSDP.checkpointing))
    best = plan_of(job.parallelism, free, "Qwen3-1.7B", 1, 8)
    assert best.layout.checkpointing == "selective"
    given = {"mode": "given", "dp_replicate": 8, "activation_checkpointing": "selective"}
    with pytest.raises(UserError, match="trl trainer of sft has activation_check"):
        config(**NODE, parallelism=given).layout("sft", "SmolLM2-135M")


def test_a_pass_that_the_settings_name_is_planned_with() -> None:
    answers = {"prompts_per_step": 8, "generations": 8, "max_prompt_tokens": 3072,
               "max_new_tokens": 1024}  # fmt: skip
    for stage, settings, sequences in (
        ("cpt", {"rows_per_step": 64, "micro_batch": 2}, 2),
        ("sft", {**LONG, "tokens_per_forward": 2 * 4096 + 100}, 2),
        ("sft", {**LONG, "tokens_per_forward": 1024}, 1),
        ("dpo", {"rows_per_step": 64, "micro_batch": 2}, 4),
        ("rlvr", {**answers, "micro_batch": 3}, 3),
    ):
        job = config(**NODE, stages=(stage,), **{stage: settings})
        planned = plan_of(job.parallelism, job.demand(stage), "SmolLM2-135M", 1, 8)  # type: ignore[arg-type]
        assert planned.layout.micro_batch == sequences, stage
    # Fewer sequences at a time are what makes it fit.
    greedy = config(**NODE, stages=("cpt",), cpt={"rows_per_step": 4096, "micro_batch": 512})
    with pytest.raises(UserError, match="no layout fits"):
        greedy.layout("cpt", "Qwen3-1.7B")


def test_the_two_answers_of_a_pair_are_never_planned_apart() -> None:
    tight = {"gpu_memory_gib": 24}
    dpo = config(
        **NODE, stages=("dpo",), dpo={"rows_per_step": 64, "max_length": 8192}, parallelism=tight
    )
    assert dpo.layout("dpo", "SmolLM2-135M").micro_batch == 2


EXTERNAL: list[tuple[StageName, str]] = [
    (stage, program) for program, stages in STAGES.items() for stage in stages
]


@pytest.mark.parametrize(("stage", "program"), EXTERNAL)
def test_an_external_program_is_given_what_it_can_be_told(stage: StageName, program: str) -> None:
    node = dict(NODE)
    if program_of(ExternalSettings.model_validate({"program": program}), stage).is_driven:
        node["processes_per_node"] = 1
    settings: dict[str, Any] = {"backend": "external"}
    job: dict[str, Any] = {
        **node, "nodes": 2, "stages": (stage,), "external": {"program": program},
    }  # fmt: skip
    sizes = {"rlvr": {"prompts_per_step": 16, "generations": 8}}.get(stage, {"rows_per_step": 64})
    ability = config(**job, **{stage: settings}).demand(stage).ability
    layout = config(**job, **{stage: {**settings, **sizes}}).layout(stage, "Llama-3.1-8B")
    assert layout.ranks == 16 and ability.refusal(layout) == ""
    for degree in DEGREES:
        given = {"mode": "given", "dp_shard": 8, degree: 2}
        if degree == "dp_shard":
            given["dp_shard"] = 16
        one = config(**job, **{stage: settings}, parallelism=given)
        if degree in ability.degrees:
            assert getattr(one.layout(stage, "Llama-3.1-8B"), degree) == given[degree]
        else:
            with pytest.raises(UserError, match=rf"the {program} trainer .* not {degree} 2"):
                one.layout(stage, "Llama-3.1-8B")


def test_the_form_names_what_the_programs_do() -> None:
    said = ExternalSettings.model_fields["program"]
    assert said.description is not None
    for name in get_args(said.annotation):
        stages = ", ".join(STAGES[name])
        assert f"{name} ({stages})" in said.description
        for stage in STAGES[name]:
            program = program_of(ExternalSettings.model_validate({"program": name}), stage)
            assert (program.name, program.stages) == (name, STAGES[name])
    assert set(STAGES) == set(get_args(said.annotation))


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

"""External programs: what they are told, and what is refused before a job."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tiny_training import question

from benchmarks.training.tiny_model import write_tiny_model
from training.external.data import measure
from training.external.prepare import check_external, prepare, program_of
from training.trainers.ability import DEGREES
from training.trainers.settings import (
    CptSettings,
    DpoSettings,
    RlvrSettings,
    SftSettings,
    StageName,
)
from training.trainers.shared_settings import (
    AdapterSettings,
    EvaluationSettings,
    ExternalSettings,
    ParallelLayout,
)
from training.trainers.spec import TrainSpec
from workspace.errors import MissingToolError, UserError

# The settings of each program that its own documentation or shipped configurations name
# (torchtitan 0.2 train_configs and docs/checkpoint.md; verl ppo_trainer and sft_trainer_engine;
# NeMo RL examples/configs and docs/guides; prime-rl configs/sft).
NAMED = {
    "torchtitan": """
        job.dump_folder job.description model.name model.flavor model.hf_assets_path optimizer.name
        optimizer.lr optimizer.weight_decay lr_scheduler.warmup_steps lr_scheduler.decay_type
        lr_scheduler.min_lr_factor training.dataset training.dataset_path
        training.local_batch_size training.global_batch_size training.seq_len training.max_norm
        training.steps training.seed training.mixed_precision_param
        parallelism.data_parallel_replicate_degree parallelism.data_parallel_shard_degree
        parallelism.fsdp_reshard_after_forward parallelism.tensor_parallel_degree
        parallelism.pipeline_parallel_degree parallelism.pipeline_parallel_microbatch_size
        parallelism.context_parallel_degree checkpoint.enable checkpoint.folder checkpoint.interval
        checkpoint.initial_load_path checkpoint.initial_load_in_hf checkpoint.last_save_model_only
        checkpoint.last_save_in_hf checkpoint.export_dtype checkpoint.async_mode
        checkpoint.keep_latest_k activation_checkpoint.mode compile.enable compile.components
        validation.enable validation.dataset validation.dataset_path validation.local_batch_size
        validation.seq_len validation.freq""",
    "verl-sft": """
        data.train_files data.val_files data.messages_key data.train_batch_size
        data.micro_batch_size_per_gpu data.use_dynamic_bsz data.max_token_len_per_gpu
        data.max_length data.truncation model.path model.enable_gradient_checkpointing optim.lr
        optim.weight_decay optim.clip_grad optim.lr_warmup_steps_ratio engine.strategy
        engine.fsdp_size checkpoint.save_contents trainer.default_local_dir trainer.project_name
        trainer.experiment_name trainer.logger trainer.total_training_steps trainer.total_epochs
        trainer.save_freq trainer.test_freq trainer.resume_mode trainer.nnodes
        trainer.n_gpus_per_node trainer.seed trainer.max_ckpt_to_keep""",
    "verl-rlvr": """
        algorithm.adv_estimator data.train_files data.val_files data.train_batch_size
        data.max_prompt_length data.max_response_length data.filter_overlong_prompts
        data.truncation actor_rollout_ref.model.path
        actor_rollout_ref.model.enable_gradient_checkpointing actor_rollout_ref.actor.optim.lr
        actor_rollout_ref.actor.grad_clip actor_rollout_ref.actor.ppo_mini_batch_size
        actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu actor_rollout_ref.actor.use_kl_loss
        actor_rollout_ref.actor.fsdp_config.fsdp_size
        actor_rollout_ref.actor.checkpoint.save_contents actor_rollout_ref.rollout.name
        actor_rollout_ref.rollout.n actor_rollout_ref.rollout.temperature
        actor_rollout_ref.rollout.tensor_model_parallel_size
        actor_rollout_ref.rollout.gpu_memory_utilization
        actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu custom_reward_function.path
        custom_reward_function.name
        ++custom_reward_function.reward_kwargs.verifier_timeout_s
        trainer.default_local_dir trainer.project_name
        trainer.experiment_name trainer.logger trainer.total_training_steps trainer.total_epochs
        trainer.save_freq trainer.test_freq trainer.resume_mode trainer.nnodes
        trainer.n_gpus_per_node trainer.val_before_train trainer.max_actor_ckpt_to_keep""",
    "prime_rl": """
        max_steps output_dir model.name model.dp_replicate model.cp data.type data.name data.splits
        data.batch_size data.micro_batch_size data.seq_len data.pack_function data.seed optim.type
        optim.lr optim.weight_decay optim.max_norm ckpt.interval ckpt.keep_last
        ckpt.resume_step""",
    "nemo_rl": """
        defaults checkpointing.enabled checkpointing.checkpoint_dir checkpointing.metric_name
        checkpointing.keep_top_k checkpointing.save_period policy.model_name policy.tokenizer.name
        policy.tokenizer.chat_template policy.train_global_batch_size
        policy.train_micro_batch_size policy.max_total_sequence_length policy.precision
        policy.max_grad_norm policy.dtensor_cfg.enabled policy.dtensor_cfg.tensor_parallel_size
        policy.dtensor_cfg.context_parallel_size policy.dtensor_cfg.activation_checkpointing
        policy.optimizer.kwargs.lr policy.optimizer.kwargs.weight_decay data.train.dataset_name
        data.train.data_path data.train.chat_key data.validation.dataset_name
        data.validation.data_path data.validation.chat_key logger.log_dir logger.wandb_enabled
        logger.tensorboard_enabled cluster.gpus_per_node cluster.num_nodes
        sft.max_num_epochs sft.max_num_steps sft.val_period sft.val_at_start sft.seed
        dpo.max_num_epochs dpo.max_num_steps dpo.val_period dpo.val_at_start dpo.seed
        dpo.reference_policy_kl_penalty""",
}


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


def make_spec(folder: Path, base: Path, stage: StageName, **changes: Any) -> TrainSpec:
    """64 questions, 16 in a step."""
    data = folder / "rows.parquet"
    if not data.exists():
        pq.write_table(pa.Table.from_pylist([question(number) for number in range(64)]), data)
    (folder / "stage").mkdir(exist_ok=True)
    settings: dict[str, Any] = {
        "cpt": CptSettings(backend="external", sequence_length=128, rows_per_step=16),
        "sft": SftSettings(backend="external", epochs=2, rows_per_step=16, token_budget=0),
        "dpo": DpoSettings(backend="external", rows_per_step=16),
        "rlvr": RlvrSettings(backend="external", steps=5),
        "checkpoint_every_steps": 10,
        "seed": 7,
        **changes,
    }
    return TrainSpec(
        stage=stage,
        attempt=1,
        stage_dir=folder / "stage",
        attempt_dir=folder / "stage",
        parent=base,
        data=(data,),
        precision="bf16",
        use_gpu=True,
        keep_checkpoints=3,
        **settings,
    )


def rendered(folder: Path, base: Path, spec: TrainSpec, *, gpus: int = 8) -> dict[str, Any]:
    """The program's settings by dotted name, as a reader of its file sees them."""
    target = folder / "told"
    prepare(
        spec, target, model=base, run="my run", nodes=2, processes_per_node=8, gpus_per_node=gpus
    )
    for name, read in (("train.toml", tomllib.loads), ("train.yaml", yaml.safe_load)):
        if (target / name).exists():
            return flat(read((target / name).read_text()))
    lines = (target / "overrides.txt").read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def flat(nested: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def launch(folder: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((folder / "told" / "launch.json").read_text())
    return value


def test_torchtitan_is_told_the_layout_and_the_budget(base: Path, tmp_path: Path) -> None:
    layout = ParallelLayout(dp_shard=2, tp=4, pp=2, zero=1, activation_checkpointing="selective")
    named = {"model.name": "llama3", "model.flavor": "debugmodel", "metrics.log_freq": 5}
    spec = make_spec(
        tmp_path, base, "cpt", layout=layout,
        external=ExternalSettings(program="torchtitan", overrides=named),
    )  # fmt: skip
    told = rendered(tmp_path, base, spec)
    assert set(told) - {"metrics.log_freq"} <= set(NAMED["torchtitan"].split())
    size = measure(spec)
    assert (
        told
        | {
            "parallelism.data_parallel_shard_degree": 2,
            "parallelism.tensor_parallel_degree": 4,
            "parallelism.pipeline_parallel_degree": 2,
            "parallelism.context_parallel_degree": 1,
            "parallelism.fsdp_reshard_after_forward": "never",
            "training.global_batch_size": 16,
            "training.local_batch_size": 8,  # a pipeline's replica takes its whole share
            "training.steps": -(-size.tokens // (16 * 128)),
            "checkpoint.initial_load_path": str(base),
            "checkpoint.initial_load_in_hf": True,
            "model.flavor": "debugmodel",
            "metrics.log_freq": 5,
        }
        == told
    )
    assert launch(tmp_path)["command"] == [
        "{python}", "-m", "torchtitan.train", "--job.config_file",
        str(tmp_path / "told" / "train.toml"),
    ]  # fmt: skip
    rows = list(Path(told["training.dataset_path"]).glob("*.parquet"))
    assert [pq.read_table(path).num_rows for path in rows] == [64]


def test_a_folder_that_is_renamed_is_told_by_its_later_name(base: Path, tmp_path: Path) -> None:
    spec = make_spec(tmp_path, base, "sft", external=ExternalSettings(program="prime_rl"))
    told = prepare(
        spec, tmp_path / "waits", model=base, run="r", nodes=1, processes_per_node=8,
        gpus_per_node=8, known_as=tmp_path / "attempts" / "2" / "external",
    )  # fmt: skip
    assert f"{tmp_path}/attempts/2/external/train.toml" in told.command
    assert (tmp_path / "waits" / "train.toml").exists()


def test_a_model_that_torchtitan_does_not_know_is_named(base: Path, tmp_path: Path) -> None:
    spec = make_spec(tmp_path, base, "cpt", external=ExternalSettings(program="torchtitan"))
    with pytest.raises(UserError, match=r"model\.flavor"):
        rendered(tmp_path, base, spec)


def test_verl_fine_tunes_and_rewards(base: Path, tmp_path: Path) -> None:
    verl = ExternalSettings(program="verl")
    spec = make_spec(tmp_path, base, "sft", external=verl, layout=ParallelLayout(dp_shard=16))
    told = rendered(tmp_path, base, spec)
    assert set(told) <= set(NAMED["verl-sft"].split())
    assert told["trainer.total_training_steps"] == "8"  # 2 passes over 64 rows, 16 a step
    assert told["data.val_files"] == "null" and told["engine.fsdp_size"] == "16"
    assert told["checkpoint.save_contents"] == "[model,optimizer,extra,hf_model]"
    assert told["trainer.project_name"] == "'my run'"
    assert launch(tmp_path)["command"][1:3] == ["-m", "verl.trainer.sft_trainer"]

    spec = make_spec(tmp_path, base, "rlvr", external=verl)
    told = rendered(tmp_path, base, spec)
    assert set(told) <= set(NAMED["verl-rlvr"].split())
    assert told["algorithm.adv_estimator"] == "grpo"
    assert told["actor_rollout_ref.rollout.n"] == "4"
    assert Path(told["custom_reward_function.path"]).name == "verl_reward.py"
    assert told["++custom_reward_function.reward_kwargs.verifier_timeout_s"] == "60.0"
    assert (launch(tmp_path)["is_driven"], launch(tmp_path)["steps"]) == (True, 5)


def test_prime_rl_goes_on_only_from_a_checkpoint(base: Path, tmp_path: Path) -> None:
    spec = make_spec(tmp_path, base, "sft", external=ExternalSettings(program="prime_rl"))
    told = rendered(tmp_path, base, spec)
    assert set(told) <= set(NAMED["prime_rl"].split())
    assert "ckpt.resume_step" not in told and told["max_steps"] == 8
    assert (told["data.pack_function"], told["data.seq_len"]) == ("stack", 768)
    (spec.stage_dir / "external" / "checkpoints" / "step_4").mkdir(parents=True)
    assert rendered(tmp_path, base, spec)["ckpt.resume_step"] == -1


@pytest.mark.parametrize("stage", ["sft", "dpo"])
def test_nemo_rl_stands_on_the_checkouts_own_file(
    base: Path, tmp_path: Path, stage: StageName
) -> None:
    external = ExternalSettings(program="nemo_rl", folder="/src/RL")
    spec = make_spec(tmp_path, base, stage, external=external, layout=ParallelLayout(tp=2))
    told = rendered(tmp_path, base, spec)
    assert set(told) <= set(NAMED["nemo_rl"].split())
    assert told["defaults"] == f"/src/RL/examples/configs/{stage}.yaml"
    assert told[f"{stage}.max_num_steps"] == (4 if stage == "dpo" else 8)
    assert (told["policy.dtensor_cfg.tensor_parallel_size"], told["cluster.num_nodes"]) == (2, 2)
    command = launch(tmp_path)["command"]
    assert command[:3] == ["uv", "run", f"/src/RL/examples/run_{stage}.py"]
    lines = Path(told["data.train.data_path"]).read_text().splitlines()
    assert len(lines) == 64
    row, first = question(0), json.loads(lines[0])
    if stage == "sft":
        assert first == {"messages": row["prompt"] + row["completion"]}  # type: ignore[operator]
    else:
        assert first["context"] == row["prompt"]
        assert [answer["rank"] for answer in first["completions"]] == [0, 1]
        assert first["completions"][0]["completion"] == row["chosen"]


@pytest.mark.parametrize(
    ("program", "stage", "rest"),
    [
        ("torchtitan", "cpt", set()), ("nemo_rl", "sft", {"dp_shard"}),
        ("nemo_rl", "dpo", {"dp_shard"}), ("verl", "sft", {"dp_replicate"}),
        ("verl", "rlvr", {"dp_replicate"}), ("prime_rl", "sft", {"dp_shard"}),
    ],
)  # fmt: skip
def test_a_program_is_told_the_degrees_that_it_states(
    base: Path, tmp_path: Path, program: str, stage: StageName, rest: set[str]
) -> None:
    """All but one, `rest`, which it makes of the ranks that are left."""
    overrides = {"model.name": "llama3", "model.flavor": "8B"} if program == "torchtitan" else {}
    external = ExternalSettings.model_validate({"program": program, "overrides": overrides})

    def told(layout: ParallelLayout) -> dict[str, Any]:
        return rendered(tmp_path, base, make_spec(
            tmp_path, base, stage, external=external, layout=layout
        ))  # fmt: skip

    plain = told(ParallelLayout())
    heard = {name for name in DEGREES if told(ParallelLayout(**{name: 2})) != plain}
    ability = program_of(external, stage).ability
    assert heard | rest == set(ability.degrees)
    again = {
        kept
        for kept in ("none", "selective", "full")
        if told(ParallelLayout(activation_checkpointing=kept)) != plain
    }
    assert {"none", *again} >= set(ability.checkpointing)


def test_what_cannot_be_is_said_before_a_job(base: Path, tmp_path: Path) -> None:
    def check(stage: StageName, processes: int = 1, **settings: Any) -> None:
        check_external(
            ExternalSettings(**settings), stage, processes_per_node=processes, python=sys.executable
        )

    with pytest.raises(UserError, match=r"torchtitan does cpt here, not dpo; there are .*nemo_rl"):
        check("dpo", program="torchtitan")
    with pytest.raises(MissingToolError, match="pip install torchtitan"):
        check("cpt", program="torchtitan")
    with pytest.raises(MissingToolError, match=r"clone https://.* and set external\.folder"):
        check("sft", program="nemo_rl")
    with pytest.raises(MissingToolError, match=r"has no examples/run_sft\.py"):
        check("sft", program="nemo_rl", folder=str(tmp_path))
    with pytest.raises(UserError, match="set processes_per_node to 1"):
        check("rlvr", 8, program="verl")
    # Inside a container it is asked by the job, which then ends with 93.
    check_external(ExternalSettings(), "cpt", processes_per_node=8, python="")
    with pytest.raises(MissingToolError, match=r"cannot be started .*slurm\.python"):
        check_external(
            ExternalSettings(), "cpt", processes_per_node=8, python=str(tmp_path / "python")
        )
    named = ExternalSettings(overrides={"model.name": "llama3", "model.flavor": "8B"})
    for change, words in (
        ({"checkpoint_every_steps": 0}, "checkpoint_every_steps is 0"),
        ({"adapter": AdapterSettings(method="lora")}, "train all weights"),
        ({"cpt": CptSettings(backend="external", max_hours=1)}, r"cpt\.max_hours"),
        ({"evaluation": EvaluationSettings(every_steps=2, patience=1)}, r"evaluation\.patience"),
    ):
        with pytest.raises(UserError, match=words):
            rendered(tmp_path, base, make_spec(tmp_path, base, "cpt", external=named, **change))
    counted = RlvrSettings(backend="external", token_budget=9)
    with pytest.raises(UserError, match=r"rlvr\.token_budget"):
        rendered(
            tmp_path,
            base,
            make_spec(
                tmp_path, base, "rlvr", external=ExternalSettings(program="verl"), rlvr=counted
            ),
        )

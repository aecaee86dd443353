"""Training end to end with a tiny model and the local launcher.

Processes are few and killed for real; what matters is that the weights come out bit for bit as
if nothing had happened.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny_training import flip_a_bit, question, tiny_config, weights_hash, write_dataset

from benchmarks.training.tiny_model import write_tiny_model
from training import checkpoints
from training.failure_texts import TrainingStoppedError
from training.goodput import Bucket, account_run
from training.goodput.buckets import MICROSECONDS
from training.ledger import audit
from training.metrics import read_metrics
from training.progress import TrainProgress
from training.train import TrainConfig, plan, preview, train
from training.trainers.settings import DpoSettings, RlvrSettings
from training.trainers.shared_settings import EvaluationSettings
from training.trainers.spec import TrainSpec
from workspace import registry
from workspace.errors import MissingInputError, UserError, WorkspaceBusyError
from workspace.locking import stage_lock
from workspace.paths import Workspace
from workspace.stage import StageResult

pytestmark = pytest.mark.model

STEPS = 120
RECIPE = "tiny_cpu@0123456789abcdef"
ROWS = [question(number) for number in range(64)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


def new_workspace(tmp_path: Path) -> Path:
    write_dataset(tmp_path / "workspace", ROWS)
    return tmp_path / "workspace"


@pytest.fixture(scope="module")
def trained(
    base: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainConfig, StageResult, list[TrainProgress]]:
    """A run that nothing disturbed: fine-tuning, then two steps of preferences and of GRPO."""
    seen: list[TrainProgress] = []
    config = tiny_config(
        new_workspace(tmp_path_factory.mktemp("trained")),
        base,
        steps=STEPS,
        stages=("sft", "dpo", "rlvr"),
        dpo=DpoSettings(max_steps=2, rows_per_step=8),
        rlvr=RlvrSettings(steps=2, max_new_tokens=8),
        evaluation=EvaluationSettings(every_steps=60, max_rows=8),
        recipe=RECIPE,
    )
    return config, train(config, observe=seen.append), seen


def test_a_run_ends_in_a_published_and_registered_model(
    trained: tuple[TrainConfig, StageResult, list[TrainProgress]],
) -> None:
    config, result, seen = trained
    assert not result.skipped
    assert result.manifest.counts_out == {"sft_steps": STEPS, "dpo_steps": 2, "rlvr_steps": 2}
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(result.directory, local_files_only=True)
    [version] = registry.versions(Workspace(config.workspace), "dsm")
    assert config.workspace / version.path == result.directory
    assert version.base_model == config.base_model
    assert version.lineage["dataset"] == "d" * 16
    card = (result.directory / "README.md").read_text()
    assert "CC0-1.0" in card and config.base_model in card
    assert {progress.stage for progress in seen} == {"sft", "dpo", "rlvr"}
    assert {result.manifest.notes[name]["ended_by"] for name in config.stages} == {"budget"}
    assert not list(result.directory.parent.glob("*/checkpoints")), "not needed any more"


def test_a_run_says_from_which_recipe_and_where_it_began(
    trained: tuple[TrainConfig, StageResult, list[TrainProgress]],
) -> None:
    """In its record, its card and the registry; its key depends on neither."""
    config, result, _ = trained
    record = plan(config).folder.read_record()
    assert record is not None and record.placement is not None
    assert record.lineage["recipe"] == RECIPE
    assert (record.placement.nodes, record.placement.checkpoint_every_steps) == (1, 10)
    assert {stage: layout.ranks for stage, layout in record.placement.layouts.items()} == {
        "sft": 1, "dpo": 1, "rlvr": 1,
    }  # fmt: skip
    card = (result.directory / "README.md").read_text()
    for line in (
        f"| recipe | `{RECIPE}` |", "| nodes | 1 |", "| layout of sft | 1 rank |",
        "| checkpoints | every 10 steps, the newest 2 kept |",
    ):  # fmt: skip
        assert line in card, line
    [version] = registry.versions(Workspace(config.workspace), "dsm")
    assert version.lineage["recipe"] == RECIPE
    elsewhere = {"recipe": "", "processes_per_node": 2, "checkpoint_every_steps": 7}
    other = plan(config.model_copy(update=elsewhere))
    assert other.record.key == record.key and "recipe" not in other.record.lineage


def test_a_run_may_start_from_a_registered_model(
    trained: tuple[TrainConfig, StageResult, list[TrainProgress]],
) -> None:
    config, result, _ = trained
    child = plan(config.model_copy(update={"base_model": "dsm:1", "stages": ("rlvr",)}))
    assert child.base == result.directory.resolve()
    parent = {"parent_run": result.directory.parent.name, "parent_key": result.manifest.key}
    assert parent.items() <= child.record.lineage.items()


def test_the_loss_on_the_validation_split_is_recorded(
    trained: tuple[TrainConfig, StageResult, list[TrainProgress]],
) -> None:
    _, result, _ = trained
    steps = read_metrics(result.directory.parent, "sft")
    losses = {step.step: step.extra["eval_loss"] for step in steps if "eval_loss" in step.extra}
    assert set(losses) == {60, 120}
    assert losses[120] < losses[60]


def test_the_model_learns(
    trained: tuple[TrainConfig, StageResult, list[TrainProgress]],
) -> None:
    _, result, _ = trained
    losses = [step.loss for step in read_metrics(result.directory.parent, "sft")]
    assert len(losses) == STEPS
    # Each answer is a number of 1 or 2 digits and the end token; the random start knows nothing.
    assert losses[0] > 5 and sum(losses[-5:]) / 5 < 1.5


def test_the_time_of_the_run_is_accounted_for(
    trained: tuple[TrainConfig, StageResult, list[TrainProgress]],
) -> None:
    config, result, _ = trained
    run = account_run(result.directory.parent)
    paid = [value for bucket, value in run.time.items() if bucket is not Bucket.QUEUE]
    assert sum(paid) == run.allocated > 0
    assert run.failures == 0 and run.time[Bucket.RECOMPUTE] == 0
    assert run.time[Bucket.STALLED] < run.allocated / 50, "moments before the publication"
    assert min(run.time[bucket] for bucket in (Bucket.LOAD, Bucket.STARTUP, Bucket.CHECKPOINT)) > 0
    steps = read_metrics(result.directory.parent)
    cores = config.cpus_per_process * config.processes_per_node
    # Saves and evaluations between two steps: what follows a stage's last step is none of its time.
    evaluated = sum(
        phase.end - phase.start
        for attempt in run.attempts
        for phase in attempt.trace.phases
        if phase.bucket is Bucket.EVALUATION and phase.end <= attempt.trace.steps[-1].end
    )
    between = evaluated / MICROSECONDS + sum(step.checkpoint_s for step in steps)
    assert 0 < evaluated < run.time[Bucket.EVALUATION] / cores
    worked = run.device_seconds[Bucket.PRODUCTIVE] / cores + between
    assert worked == pytest.approx(sum(step.seconds for step in steps), rel=0.005)


def test_grpo_reports_rewards_and_verdicts(
    trained: tuple[TrainConfig, StageResult, list[TrainProgress]],
) -> None:
    _, result, _ = trained
    steps = read_metrics(result.directory.parent, "rlvr")
    assert [step.step for step in steps] == [1, 2]
    for step in steps:
        assert 0 <= step.extra["reward"] <= 1
        assert step.extra["no_verdict_rate"] == 0
        assert 0 <= step.extra["frac_reward_zero_std"] <= 1


def test_a_published_run_is_skipped(
    trained: tuple[TrainConfig, StageResult, list[TrainProgress]],
) -> None:
    config, result, _ = trained
    again = train(config, observe=lambda progress: pytest.fail("no job is needed"))
    assert again.skipped and again.manifest == result.manifest
    for recipe in ("", "other@fedcba9876543210"):
        assert train(config.model_copy(update={"recipe": recipe})).skipped
    assert len(registry.versions(Workspace(config.workspace), "dsm")) == 1


def test_killed_supervisor_and_killed_rank_change_nothing(
    trained: tuple[TrainConfig, StageResult, list[TrainProgress]], base: Path, tmp_path: Path
) -> None:
    config = tiny_config(new_workspace(tmp_path), base, steps=STEPS)
    stage = plan(config).folder.stage("sft")
    code = (
        "import sys; from training.train import TrainConfig, train; "
        "train(TrainConfig.model_validate_json(sys.argv[1]))"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", code, config.model_dump_json()])
    wait_for(lambda: stage.metrics(1).exists())
    supervisor.kill()
    supervisor.wait()

    kills: list[int] = []

    def kill_once(progress: TrainProgress) -> None:
        if not kills and progress.step >= 11:
            assert progress.attempt == 1, "the running job was found again, not started twice"
            kills.append(kill_rank(stage.attempt(1)))

    result = train(config, observe=kill_once)
    assert kills, "the run ended before the rank could be killed"
    assert stage.latest_attempt() == 2
    assert '"state": "lost"' in (stage.attempt(1) / "outcome.json").read_text()
    steps = read_metrics(result.directory.parent, "sft")
    assert [step.step for step in steps] == list(range(1, STEPS + 1))
    assert any(step.attempt == 1 for step in steps), "the second attempt began with a checkpoint"
    run = account_run(result.directory.parent)
    assert run.failures == 1 and run.time[Bucket.RECOMPUTE] > 0
    assert run.rhythm.recovery_s is not None and run.rhythm.recovery_s > 0
    undisturbed = trained[1].directory.parent / "sft" / "model"
    assert weights_hash(result.directory) == weights_hash(undisturbed)


def test_stop_on_request_and_go_on_with_other_ranks(
    trained: tuple[TrainConfig, StageResult, list[TrainProgress]], base: Path, tmp_path: Path
) -> None:
    """Two ranks, stopped; one rank goes on with the same rows and comes to the same losses.

    The undisturbed run splits each step into several forward passes, this one does not.
    """
    config = tiny_config(
        new_workspace(tmp_path), base, steps=STEPS, processes_per_node=2, keep_checkpoints=1
    )
    whole_steps = config.sft.model_copy(update={"tokens_per_forward": 100_000})
    config = config.model_copy(update={"sft": whole_steps})
    reached: list[int] = []

    def observe(progress: TrainProgress) -> None:
        reached.append(progress.step)

    with pytest.raises(TrainingStoppedError, match="same command goes on"):
        train(config, observe=observe, should_stop=lambda: bool(reached) and reached[-1] > 0)
    stage = plan(config).folder.stage("sft")
    assert '"state": "resumable"' in (stage.attempt(1) / "outcome.json").read_text()
    result = train(config.model_copy(update={"processes_per_node": 1}))
    assert stage.latest_attempt() == 2
    steps = read_metrics(result.directory.parent, "sft")
    assert [step.step for step in steps] == list(range(1, STEPS + 1))
    expected = read_metrics(trained[1].directory.parent, "sft")
    assert [step.tokens for step in steps] == [step.tokens for step in expected]
    assert [step.loss for step in steps] == pytest.approx(
        [step.loss for step in expected], rel=0.02
    )


def test_ranks_pass_over_a_changed_checkpoint_together(base: Path, tmp_path: Path) -> None:
    config = tiny_config(
        new_workspace(tmp_path), base, steps=STEPS, processes_per_node=2, checkpoint_every_steps=2
    )
    reached: list[int] = []

    def observe(progress: TrainProgress) -> None:
        reached.append(progress.step)

    with pytest.raises(TrainingStoppedError, match="same command goes on"):
        train(config, observe=observe, should_stop=lambda: bool(reached) and reached[-1] > 3)
    stage = plan(config).folder.stage("sft")
    before, newest = checkpoints.complete_checkpoints(stage.checkpoints)
    assert {"rng_state_0.pth", "rng_state_1.pth"} < set(newest.manifest()["sha256"])
    flip_a_bit(newest.path / "rng_state_1.pth")
    train(config)
    found = audit(stage.root)
    assert found.stretches == [("1", 1, before.step), ("2", before.step + 1, STEPS)]
    assert found.faults == []


def test_rows_that_nobody_can_train_on_are_the_users_fault(base: Path, tmp_path: Path) -> None:
    write_dataset(tmp_path, [{**question(1), "completion": "not messages"}])
    folder = tmp_path / "datasets/dsm/views/trl_sft/train.parquet"
    pq.write_table(pa.table({"text": ["x"]}), folder)
    config = tiny_config(tmp_path, base, steps=8)
    with pytest.raises(UserError, match=r"lacks the column\(s\) prompt, completion"):
        train(config)
    assert plan(config).folder.stage("sft").latest_attempt() == 1, "not tried again"
    assert registry.versions(Workspace(tmp_path), "dsm") == []


def test_a_diverged_run_says_so_and_is_not_tried_again(base: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    broken = tmp_path / "broken"
    shutil.copytree(base, broken)
    weights = load_file(broken / "model.safetensors")
    weights["model.norm.weight"] = torch.full_like(weights["model.norm.weight"], 3e38)
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    config = tiny_config(new_workspace(tmp_path), broken, steps=8)
    with pytest.raises(UserError, match=r"diverged. Lower sft\.learning_rate"):
        train(config)
    assert plan(config).folder.stage("sft").latest_attempt() == 1


def test_a_run_has_one_supervisor(base: Path, tmp_path: Path) -> None:
    config = tiny_config(new_workspace(tmp_path), base, steps=8)
    name = plan(config).folder.name
    with (
        stage_lock(Workspace(config.workspace), f"run-{name}"),
        pytest.raises(WorkspaceBusyError, match=name),
    ):
        train(config)


def test_a_named_run_refuses_other_settings(base: Path, tmp_path: Path) -> None:
    config = tiny_config(new_workspace(tmp_path), base, steps=8, run="mine")
    planned = plan(config)
    planned.folder.write_record(planned.record)
    other = config.model_copy(update={"seed": 1})
    with pytest.raises(UserError, match="started with other settings"):
        train(other)


def test_a_dry_run_on_slurm_writes_what_would_be_submitted(base: Path, tmp_path: Path) -> None:
    config = tiny_config(new_workspace(tmp_path), base, steps=4, launcher="slurm", nodes=2)
    text = preview(config)
    stage = plan(config).folder.stage("sft")
    script, told = stage.root / "dry-run" / "job.sbatch", stage.root / "dry-run" / "spec.json"
    assert str(script) in text and str(told) in text
    assert "#SBATCH --nodes=2\n" in script.read_text()
    spec = TrainSpec.model_validate_json(told.read_text())
    assert spec.attempt_dir == stage.attempt(1).resolve()
    assert not stage.attempts.exists() and plan(config).folder.read_record() is None


def test_key_follows_what_changes_the_weights(base: Path, tmp_path: Path) -> None:
    config = tiny_config(new_workspace(tmp_path), base, steps=8)
    key = plan(config).record.key
    assert plan(config.model_copy(update={"keep_checkpoints": 5})).record.key == key
    assert plan(config.model_copy(update={"seed": 5})).record.key != key
    write_dataset(config.workspace, ROWS, key="e" * 16)
    assert plan(config).record.key != key


def test_without_a_data_set_the_error_names_the_flow(base: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"flows\.build_datasets"):
        train(tiny_config(tmp_path, base, steps=8))


def wait_for(condition: Callable[[], bool], timeout_s: float = 240.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)


def kill_rank(attempt_dir: Path) -> int:
    """SIGKILL to the trainer process of an attempt, not to its watcher."""
    spec = str(attempt_dir.resolve() / "spec.json")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        if spec in arguments:
            os.kill(int(process.name), signal.SIGKILL)
            return int(process.name)
    return 0

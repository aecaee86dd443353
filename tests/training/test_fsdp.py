"""The fsdp trainer in real processes: same bits after kills, other ranks, faults of the disk."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from processes import is_running
from safetensors.torch import load_file
from small_disk import fill, mounted, remount
from tiny_training import (
    flip_a_bit,
    question,
    tiny_config,
    tiny_spec,
    weights_hash,
    write_dataset,
)

from benchmarks.training.resume import disturb
from benchmarks.training.save_kill import kill_at_points
from benchmarks.training.stage_run import StageRun, wait_for
from benchmarks.training.tiny_model import write_questions, write_texts, write_tiny_model
from benchmarks.training.zygote import Zygote
from training import checkpoints
from training.cluster.job import EXIT_NEVER_AGAIN, EXIT_RESUME
from training.ledger import main
from training.metrics import StepMetrics, read_metrics
from training.phases import read_phases
from training.rollouts import read_rollouts
from training.train import train
from training.trainers.model_io import load_tokenizer
from training.trainers.reporting import Services
from training.trainers.samples import HELD_OUT_NAME, read_samples
from training.trainers.settings import CptSettings

pytestmark = pytest.mark.model

CPT: dict[str, Any] = {"sequence_length": 96, "rows_per_step": 6, "learning_rate": 1e-3}
SFT: dict[str, Any] = {"rows_per_step": 8, "tokens_per_forward": 160, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote(("training.trainers.sft",)) as running:
        yield running


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "model")


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts") / "train.parquet", 40)


@pytest.fixture(scope="module")
def questions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_questions(tmp_path_factory.mktemp("questions") / "train.parquet", 37)


@pytest.fixture(scope="module")
def tuned(
    zygote: Zygote, base: Path, questions: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Knows some of the answers, so that rewards differ and GRPO moves the weights."""
    settings = {**SFT, "epochs": 12.0, "learning_rate": 3e-3}
    run = StageRun(
        zygote, tmp_path_factory.mktemp("tuned"), parent=base, data=questions, stage="sft",
        backend="trl", **settings,
    )  # fmt: skip
    run.finish(1)
    return run.folder / "model"


def cpt(zygote: Zygote, root: Path, base: Path, texts: Path, **changes: Any) -> StageRun:
    settings = {"every": 4, "epochs": 1000.0, "max_steps": 24, **CPT, **changes}
    return StageRun(zygote, root, parent=base, data=texts, **settings)


def test_killed_runs_train_every_sample_once_and_end_in_the_same_bits(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    alone = cpt(zygote, tmp_path / "alone", base, texts, max_steps=30)
    alone.finish(2)
    killed = cpt(zygote, tmp_path / "killed", base, texts, max_steps=30)
    disturb(killed, ranks=2, kills=3, steps=30)
    killed.finish(2)
    audit = killed.audit()
    assert audit.faults == []
    assert audit.epochs > 2, "the kills are spread over borders of passes"
    assert killed.weights() == alone.weights()


def test_a_run_of_two_ranks_is_trained_accounted_for_and_published(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user starts it: the supervisor, the local launcher, torchrun, two ranks."""
    write_dataset(tmp_path, [question(number) for number in range(64)])
    config = tiny_config(
        tmp_path,
        base,
        steps=1,
        stages=("cpt",),
        cpt=CptSettings(sequence_length=128, rows_per_step=4, epochs=2),
        processes_per_node=2,
        checkpoint_every_steps=3,
    )
    result = train(config)
    steps = result.manifest.counts_out["cpt_steps"]
    stage = result.directory.parent / "cpt"
    metrics = read_metrics(result.directory.parent, "cpt")
    assert [step.step for step in metrics] == list(range(1, steps + 1))
    saved = [step.step - 1 for step in metrics if step.checkpoint_s]
    assert saved == list(range(3, steps, 3))
    assert all(step.memory["host"] > 0 for step in metrics)
    phases = [phase.phase for phase in read_phases(stage / "attempts" / "1")]
    assert phases == ["load", *["checkpoint"] * len(saved), "publish"]
    assert main([str(stage)]) == 0
    assert "every sample exactly once in every pass" in capsys.readouterr().out
    assert {path.name for path in stage.iterdir()} == {"attempts", "model", "result.json"}


@pytest.mark.parametrize(
    ("stage", "settings"),
    [
        ("sft", {"epochs": 5.5, **SFT}),
        ("dpo", {"epochs": 5.5, "rows_per_step": 8, "micro_batch": 2, "learning_rate": 1e-3}),
        ("rlvr", {"steps": 26, "prompts_per_step": 8, "generations": 4, "max_new_tokens": 4,
                  "learning_rate": 1e-3}),
        ("rlvr", {"steps": 26, "prompts_per_step": 8, "generations": 4, "max_new_tokens": 4,
                  "learning_rate": 1e-3, "micro_batch": 2}),
    ],
    ids=["sft", "dpo", "rlvr", "rlvr-passes"],
)  # fmt: skip
def test_trl_keeps_the_same_ledger(
    stage: str, settings: dict[str, Any],
    zygote: Zygote, base: Path, tuned: Path, questions: Path, tmp_path: Path,
) -> None:  # fmt: skip
    """Two ranks, two kills; it ends in the middle of a pass, as if nothing had happened."""
    made: dict[str, Any] = {"stage": stage, "backend": "trl", "every": 3, **settings}
    parent = tuned if stage == "rlvr" else base
    alone = StageRun(zygote, tmp_path / "alone", parent=parent, data=questions, **made)
    alone.finish(2)
    assert weights_hash(alone.folder / "model") != weights_hash(parent), "nothing was trained"
    run = StageRun(zygote, tmp_path / "killed", parent=parent, data=questions, **made)
    for step in (3, 12):
        attempt = run.start(2)
        wait_for(lambda step=step: run.newest_step >= step, attempt)  # type: ignore[misc]
        attempt.kill()
        attempt.wait()
    run.finish(2)
    audit = run.audit()
    assert audit.faults == []
    assert (audit.samples, audit.steps) == (37, 26)
    assert [stretch.writer for stretch in audit.stretches] == ["1", "2", "3"]
    # Tokens of GRPO are those of the answers, which were drawn anew after each kill.
    first, second = ([(s.step, s.loss, s.tokens) for s in one.metrics()] for one in (alone, run))
    assert first == second
    assert run.weights() == alone.weights()


def test_other_numbers_of_ranks_change_rounding_alone(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    alone = cpt(zygote, tmp_path / "alone", base, texts, every=100, rows_per_step=7)
    alone.finish(1)
    changed = cpt(zygote, tmp_path / "changed", base, texts, every=100, rows_per_step=7)
    for ranks in (2, 3):
        stopped = changed.start(ranks, stop=True)  # after one step
        assert set(stopped.wait()) == {EXIT_RESUME}
    changed.finish(4)
    pairs = zip(alone.metrics(), changed.metrics(), strict=True)
    assert max(abs(one.loss - other.loss) for one, other in pairs) < 1e-5
    audit = changed.audit()
    assert audit.faults == []
    assert audit.stretches == [("1", 1, 1), ("2", 2, 2), ("3", 3, 24)]


def test_how_the_weights_are_spread_changes_nothing_else(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    """Activations computed again, weights kept gathered, copies of the weights, other passes."""
    same_bits = {
        "none": {},
        "full": {"activation_checkpointing": "full"},
        "selective": {"activation_checkpointing": "selective"},
        "zero-2": {"zero": 2},
    }
    runs = {
        name: cpt(zygote, tmp_path / name, base, texts, max_steps=4, layout=layout)
        for name, layout in same_bits.items()
    }
    copies = {"dp_replicate": 2, "dp_shard": 1}
    runs["copies"] = cpt(zygote, tmp_path / "copies", base, texts, max_steps=4, layout=copies)
    whole = {**copies, "zero": 0}  # as the planner has it for a small model
    runs["whole"] = cpt(zygote, tmp_path / "whole", base, texts, max_steps=4, layout=whole)
    runs["passes"] = cpt(zygote, tmp_path / "passes", base, texts, max_steps=4, micro_batch=3)
    for run in runs.values():
        run.finish(2)
    assert len({runs[name].weights() for name in same_bits}) == 1
    assert runs["whole"].weights() == runs["copies"].weights()
    for name in ("copies", "passes"):
        pairs = zip(runs[name].metrics(), runs["none"].metrics(), strict=True)
        assert max(abs(one.loss - other.loss) for one, other in pairs) < 1e-5


def test_one_rank_trains_what_is_not_divided(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    """`zero: 0` on one GPU, as `parallelism: auto` has it there."""
    layouts: dict[str, dict[str, Any]] = {"alone": {"zero": 0}, "sharded": {"zero": 3}}
    runs = [
        cpt(zygote, tmp_path / name, base, texts, max_steps=4, layout=layout)
        for name, layout in layouts.items()
    ]
    for run in runs:
        run.finish(1)
    assert runs[0].weights() == runs[1].weights()
    wrong = cpt(zygote, tmp_path / "wrong", base, texts, layout={"zero": 0, "dp_shard": 2})
    assert EXIT_NEVER_AGAIN in wrong.start(2).wait()
    assert "divides among dp_shard ranks as zero 1 or 2 or 3, not 0" in wrong.log()


def test_bf16_computes_coarsely_and_keeps_fine_weights(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    losses = {}
    for precision in ("fp32", "bf16"):
        run = cpt(zygote, tmp_path / precision, base, texts, max_steps=8, precision=precision)
        run.finish(2)
        losses[precision] = [step.loss for step in run.metrics()]
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.01)
    assert losses["bf16"] != losses["fp32"]
    weights = load_file(run.folder / "model" / "model.safetensors")
    coarse = [found.bfloat16().float().equal(found) for found in weights.values()]
    assert not any(coarse), "updates smaller than bf16 can hold are in the weights"


@pytest.mark.parametrize("is_async", [False, True])
def test_a_kill_in_a_save_leaves_the_newest_complete_one(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path, is_async: bool
) -> None:
    run = cpt(zygote, tmp_path, base, texts, every=2, max_steps=100_000, async_save=is_async)
    outcomes = kill_at_points(run, 2)
    assert all(outcome.is_newest and outcome.is_clean for outcome in outcomes)


def test_fine_tuning_learns_what_trl_learns(
    zygote: Zygote, base: Path, questions: Path, tmp_path: Path
) -> None:
    """Two implementations of the same settings: loss by loss."""
    losses = {}
    for backend in ("trl", "fsdp"):
        run = StageRun(
            zygote,
            tmp_path / backend,
            parent=base,
            data=questions,
            stage="sft",
            backend=backend,
            epochs=2.0,
            **SFT,
        )
        run.finish(1)
        losses[backend] = [step.loss for step in run.metrics()]
    assert losses["fsdp"] == pytest.approx(losses["trl"], abs=2e-4)
    assert losses["fsdp"][-1] < losses["fsdp"][0] - 0.5


def test_the_best_weights_on_unseen_text_are_published(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    """A rate that spoils the model: patience ends the stage, the kept weights are its result."""
    run = cpt(
        zygote,
        tmp_path,
        base,
        texts,
        learning_rate=0.5,
        evaluation={"every_steps": 2, "held_out_share": 0.2, "patience": 3},
    )
    run.finish(2)
    losses = [step.extra["eval_loss"] for step in run.metrics() if "eval_loss" in step.extra]
    best = losses.index(min(losses))
    told = [phase.phase for phase in read_phases(run.folder / "attempts" / "1")]
    assert told.count("evaluation") == len(losses), "of rank 0 alone"
    assert run.result["ended_by"] == "patience"
    assert len(losses) == best + 1 + 3
    kept = run.folder / "model"
    assert evaluate(kept, run) == pytest.approx(losses[best], rel=1e-4)


def evaluate(folder: Path, run: StageRun) -> float:
    """The mean loss on the held-out samples, by transformers alone and one document at a time."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    held = read_samples(run.folder / "samples", HELD_OUT_NAME)
    total, count = 0.0, 0
    for number in range(len(held)):
        sample = held[number]
        starts = [*(sample.positions == 0).nonzero()[0], len(sample.ids)]
        for first, last in pairwise(starts):
            if last - first < 2:
                continue
            ids = torch.tensor(sample.ids[first:last])[None]
            with torch.no_grad():
                total += float(model(input_ids=ids, labels=ids).loss) * (last - first - 1)
            count += last - first - 1
    return total / count


def test_replaced_ranks_publish_nothing(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    """A dead node daemon leaves its ranks running: frozen here, and awake beside new ones."""
    run = cpt(zygote, tmp_path, base, texts, every=2, max_steps=300)
    old = run.start(1)
    wait_for(lambda: run.newest_step >= 4, old)
    os.kill(old.pids[0], signal.SIGSTOP)
    frozen_at = run.newest_step
    new = run.start(1)
    wait_for(lambda: run.newest_step > frozen_at + 4, new)
    os.kill(old.pids[0], signal.SIGCONT)
    assert old.wait() != [0]
    assert "FencedError" in run.log(1)
    stale = [found for found in checkpoints.complete_checkpoints(run.checkpoints)
             if found.attempt == 1 and found.step > frozen_at]  # fmt: skip
    assert stale == []
    assert is_running(new.pids[0])
    new.kill()
    new.wait()


def test_the_published_model_is_the_trained_one(
    zygote: Zygote, texts: Path, tmp_path: Path
) -> None:
    """Tied weights, three ranks that do not divide its rows, as any loader reads it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    base = write_tiny_model(tmp_path / "base", tied=True)
    run = cpt(zygote, tmp_path / "run", base, texts, max_steps=3)
    run.finish(3)
    folder = run.folder / "model"
    model, about = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not about["missing_keys"] and not about["unexpected_keys"]
    assert type(model).__name__ == "LlamaForCausalLM"
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert AutoTokenizer.from_pretrained(folder).chat_template
    before, after = load_file(base / "model.safetensors"), load_file(folder / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(not before[name].equal(after[name]) for name in before), "all of them were trained"
    assert {found.dtype for found in after.values()} == {before["model.norm.weight"].dtype}


def test_a_checkpoint_with_changed_bytes_is_passed_over(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    run = cpt(zygote, tmp_path, base, texts, every=2, max_steps=80, keep=3)
    attempt = run.start(1)
    wait_for(lambda: run.newest_step >= 6, attempt)
    attempt.kill()
    attempt.wait()
    *_, before, newest = checkpoints.complete_checkpoints(run.checkpoints)
    flip_a_bit(newest.path / "__0_0.distcp")
    run.finish(1)
    assert run.audit().stretches[0] == ("1", 1, before.step)
    assert run.audit().faults == []
    assert "is damaged (__0_0.distcp)" in run.log()


def test_a_run_does_not_go_on_with_other_samples(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    cpt(zygote, tmp_path, base, texts).start(1, stop=True).wait()
    other = cpt(zygote, tmp_path, base, texts, sequence_length=64)
    assert other.start(1).wait() == [EXIT_NEVER_AGAIN]
    error = json.loads((other.attempt_dir() / "error.json").read_text())["message"]
    assert "samples, made_from changed" in error and "checkpoint-1" in error


def test_sequences_longer_than_the_models_are_the_users_to_shorten(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    run = cpt(zygote, tmp_path, base, texts, sequence_length=513)
    assert run.start(2).wait() == [EXIT_NEVER_AGAIN, EXIT_NEVER_AGAIN]
    assert "512 positions" in json.loads((run.attempt_dir() / "error.json").read_text())["message"]


def test_steps_are_sent_to_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    spec = tiny_spec(tmp_path, tmp_path, "cpt", report_to=("tensorboard",))
    services = Services(spec)
    services.log(StepMetrics("cpt", 1, 1, 2, 0.5, 2.0, 1e-3, 0.5, 100, 0.1))
    services.close()
    assert list((spec.attempt_dir / "tensorboard").glob("events.*"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MB where the checkpoints of a stage go."""
    with mounted(tmp_path / "cpt" / "checkpoints", 6 << 10) as folder:
        yield folder


@pytest.mark.parametrize("fault", ["the disk is full", "the file system is read-only"])
def test_a_disk_that_takes_no_checkpoint_is_the_users_to_mend(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path, small_disk: Path, fault: str
) -> None:
    run = cpt(zygote, tmp_path, base, texts, every=2, max_steps=100_000, keep=1)
    attempt = run.start(2)
    wait_for(lambda: run.newest_step >= 4, attempt)
    if "full" in fault:
        # An older checkpoint's removal makes room again.
        while attempt.is_running:
            fill(small_disk)
            time.sleep(0.05)
    else:
        remount(small_disk, "ro")
    # A rank whose peer gave up first may see its connection closed.
    assert EXIT_NEVER_AGAIN in attempt.wait(), run.log()
    error = json.loads((run.attempt_dir() / "error.json").read_text())["message"]
    assert fault in error and str(small_disk) in error
    assert "goes on from the newest complete checkpoint" in error
    kept = run.newest_step
    assert kept >= 4
    (small_disk / "filler").unlink() if "full" in fault else remount(small_disk, "rw")
    again = run.start(2)
    wait_for(lambda: run.newest_step > kept, again)
    again.kill()
    again.wait()
    assert run.audit().faults == []


def test_ranks_that_share_the_weights_answer_as_the_published_model(
    zygote: Zygote, base: Path, texts: Path, tmp_path: Path
) -> None:
    """Held-out beginnings, continued by two ranks together, without a trace in the weights."""
    from transformers import AutoModelForCausalLM

    evaluation = {"every_steps": 4, "held_out_share": 0.2, "answers": 2, "answer_tokens": 9}
    asked = cpt(zygote, tmp_path / "asked", base, texts, max_steps=8, evaluation=evaluation)
    asked.finish(2)
    silent = {**evaluation, "answers": 0}
    alone = cpt(zygote, tmp_path / "alone", base, texts, max_steps=8, evaluation=silent)
    alone.finish(2)
    assert asked.weights() == alone.weights()

    told = read_rollouts(asked.folder)
    assert [one.step for one in told] == [4] * 4 + [8] * 4
    model = AutoModelForCausalLM.from_pretrained(asked.folder / "model")
    tokenizer = load_tokenizer(base)
    for answer, reference in zip(told[4::2], told[5::2], strict=True):
        assert (answer.outcome, reference.outcome) == ("evaluation", "reference")
        ids = tokenizer(answer.prompt, return_tensors="pt", add_special_tokens=False)
        found = model.generate(**ids, max_new_tokens=9, do_sample=False)
        text = tokenizer.decode(found[0, ids["input_ids"].shape[1] :], skip_special_tokens=True)
        assert answer.answer == text.strip()
        assert answer.answer != "" and reference.answer != ""

"""The trainers over TRL, called in this process: what they learn, and where they stop and go on."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tiny_training import StopAfter, flip_a_bit, question, tiny_spec, weights_hash

from benchmarks.training.tiny_model import write_tiny_model
from training.checkpoints import COMPLETE_NAME, complete_checkpoints, newest_complete
from training.data.reward import VerifiedReward
from training.data.verdict_pool import VerdictPool
from training.ledger import audit
from training.metrics import read_metrics, seconds_spent
from training.phases import read_phases
from training.trainers import dpo, grpo, sft
from training.trainers.callbacks import make_callbacks
from training.trainers.model_io import load_model, load_tokenizer
from training.trainers.planned_run import plan_run
from training.trainers.rows import read_view
from training.trainers.settings import DpoSettings, RlvrSettings, SftSettings, StageName
from training.trainers.shared_settings import AdapterSettings, EvaluationSettings, ParallelLayout
from training.trainers.spec import StageOutcome, TrainSpec
from training.trainers.stopping import StopRequest
from training.trainers.trl_ledger import Fed
from workspace.errors import UserError

pytestmark = pytest.mark.model

SFT = SftSettings(epochs=1.5, rows_per_step=8, tokens_per_forward=256, learning_rate=1e-3)
DPO = DpoSettings(epochs=1.5, rows_per_step=8, micro_batch=4, learning_rate=1e-3)
RLVR = RlvrSettings(
    steps=6, prompts_per_step=2, generations=4, max_new_tokens=4, learning_rate=1e-3
)
LORA = AdapterSettings(method="lora", rank=4, alpha=8, dropout=0.1)
STEPS = {"sft": 12, "dpo": 12, "rlvr": 6}
TRAIN = {"sft": sft.train, "dpo": dpo.train, "rlvr": grpo.train}
CASES: list[tuple[StageName, dict[str, Any]]] = [
    ("sft", {"sft": SFT}),
    ("sft", {"sft": SFT, "adapter": LORA}),
    ("dpo", {"dpo": DPO}),
    ("dpo", {"dpo": DPO, "adapter": LORA}),
    ("rlvr", {"rlvr": RLVR}),
    ("rlvr", {"rlvr": RLVR.model_copy(update={"micro_batch": 2})}),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture(scope="module")
def tuned(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Knows some of the answers, so that rewards differ."""
    settings = SFT.model_copy(update={"epochs": 8.0, "learning_rate": 3e-3})
    spec = tiny_spec(tmp_path_factory.mktemp("tuned"), base, "sft", sft=settings)
    run(spec)
    return spec.model_dir


def run(spec: TrainSpec) -> StageOutcome:
    outcome = TRAIN[spec.stage](spec, StopRequest(spec.attempt_dir))
    assert outcome is not None and outcome == StageOutcome.model_validate_json(
        spec.result_file.read_text()
    )
    return outcome


@pytest.mark.parametrize(
    ("stage", "settings"), CASES, ids=["sft", "sft-lora", "dpo", "dpo-lora", "rlvr", "rlvr-passes"]
)
def test_a_stopped_stage_goes_on_as_if_it_had_not_been(
    base: Path, tuned: Path, tmp_path: Path, stage: StageName, settings: dict[str, Any]
) -> None:
    """The same weights, bit for bit, and the same losses and learning rates of each step."""
    base = tuned if stage == "rlvr" else base
    whole = tiny_spec(tmp_path / "whole", base, stage, **settings)
    outcome = run(whole)
    assert (outcome.steps, outcome.rows, outcome.ended_by) == (STEPS[stage], 64, "budget")

    first = tiny_spec(tmp_path / "stopped", base, stage, **settings)
    assert TRAIN[stage](first, StopAfter(first.attempt_dir, 3)) is None
    newest = newest_complete(first.checkpoints)
    assert newest is not None and newest.step == 3
    assert not first.result_file.exists()
    run(tiny_spec(tmp_path / "stopped", base, stage, attempt=2, **settings))

    assert weights_hash(first.model_dir) == weights_hash(whole.model_dir)
    assert steps_of(first) == steps_of(whole)
    assert weights_hash(whole.model_dir) != weights_hash(base), "nothing was trained"


@pytest.mark.parametrize(
    ("stage", "settings"), [CASES[0], CASES[3], CASES[4]], ids=["sft", "dpo-lora", "rlvr"]
)
def test_a_checkpoint_with_changed_bytes_is_passed_over(
    base: Path,
    tuned: Path,
    tmp_path: Path,
    stage: StageName,
    settings: dict[str, Any],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """One bit, in a file of the right size: the checkpoint before is gone on from."""
    base = tuned if stage == "rlvr" else base
    settings = {**settings, "checkpoint_every_steps": 2}
    whole = tiny_spec(tmp_path / "whole", base, stage, **settings)
    run(whole)
    spec = tiny_spec(tmp_path / "damaged", base, stage, **settings)
    assert TRAIN[stage](spec, StopAfter(spec.attempt_dir, 5)) is None
    before, newest = complete_checkpoints(spec.checkpoints)
    assert (before.step, newest.step) == (4, 5)
    about = newest.manifest()
    files = {path.name for path in newest.path.iterdir()} - {COMPLETE_NAME}
    assert set(about["sha256"]) == files and "optimizer.pt" in files
    assert about["cursor"] == 5 * spec.rows_per_step
    assert about["threads"] == torch.get_num_threads() and about["torch"] == torch.__version__

    flip_a_bit(newest.path / "optimizer.pt")
    run(tiny_spec(tmp_path / "damaged", base, stage, attempt=2, **settings))
    assert "is damaged (optimizer.pt)" in capfd.readouterr().out
    found = audit(spec.stage_dir)
    assert [stretch[1:] for stretch in found.stretches] == [(1, 4), (5, STEPS[stage])]
    assert (found.faults, found.retrained_steps) == ([], 1)
    assert weights_hash(spec.model_dir) == weights_hash(whole.model_dir)


def test_on_gpus_the_trainers_run_the_pass_that_was_planned(base: Path, tmp_path: Path) -> None:
    """Sequences of the layout, two to a pair, unless the settings name a number; 0 on CPUs."""
    layout = ParallelLayout(zero=0, micro_batch=4)

    def pass_of(stage: StageName, **changes: Any) -> tuple[int, int]:
        spec = tiny_spec(tmp_path / str(len(made)), base, stage, layout=layout, **changes)
        made.append(stage)
        rows = read_view(spec.data, ())
        tokenizer, stop = load_tokenizer(base), StopRequest(spec.attempt_dir)
        if stage == "rlvr":
            callbacks = make_callbacks(spec, stop, epochs=1)
            trainer = grpo.make_trainer(
                spec, tokenizer, rows, callbacks, VerifiedReward(VerdictPool(1), 4, print), Fed()
            )
        else:
            pairs = dpo.usable_pairs(spec, tokenizer, rows).rows
            lengths = [pair.length for pair in pairs]
            run = plan_run(spec, stop, spec.dpo, lengths, tokenizer, ())
            trainer = dpo.make_trainer(spec, tokenizer, pairs, [], run)
        return trainer.args.per_device_train_batch_size, trainer.args.gradient_accumulation_steps

    made: list[StageName] = []
    free = {"dpo": DPO.model_copy(update={"micro_batch": 0}), "rlvr": RLVR}
    assert pass_of("dpo", **free) == (8, 1)
    assert pass_of("dpo", **free, use_gpu=True) == (2, 4)
    assert pass_of("dpo", dpo=DPO, use_gpu=True) == (4, 2)
    assert pass_of("rlvr", **free) == (8, 1)
    assert pass_of("rlvr", **free, use_gpu=True) == (4, 2)


@pytest.mark.parametrize(
    ("named", "gpu", "limit"), [(0, False, 1024), (0, True, 3 * 128), (256, True, 256)]
)
def test_the_passes_of_fine_tuning_hold_the_planned_rows(
    base: Path, tmp_path: Path, named: int, gpu: bool, limit: int
) -> None:
    settings = SftSettings(rows_per_step=32, tokens_per_forward=named, max_length=128)
    layout = ParallelLayout(zero=0, micro_batch=3)
    spec = tiny_spec(tmp_path, base, "sft", sft=settings, layout=layout, use_gpu=gpu)
    trainer = sft.prepare(spec, StopRequest(spec.attempt_dir)).trainer
    fed = next(iter(trainer.get_train_dataloader()))
    batch = {name: tensor for name, tensor in fed.items() if tensor.ndim == 2}  # not the places
    parts = trainer._split(batch)
    sizes = [part["input_ids"].numel() for part in parts]
    assert len(batch["input_ids"]) == 32 and max(sizes) <= limit
    assert len(parts) > 1, "the bound divides the step"
    assert max(sizes) > limit // 2, "and is used"


@pytest.mark.parametrize("method", ["full", "lora", "qlora"])
def test_a_rank_reads_its_weights_on_a_gpu_of_its_own(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """Four-bit weights go to the current GPU. No GPU is here: torch is asked, and heard."""
    heard: list[str] = []
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setattr("torch.cuda.set_device", lambda device: heard.append(f"gpu {device}"))
    monkeypatch.setattr(
        "training.trainers.model_io._load", lambda *_, **options: heard.append("read")
    )
    monkeypatch.setattr("training.trainers.model_io.require_module", lambda *_: None)
    monkeypatch.setattr("training.trainers.model_io._four_bits", lambda dtype: None)
    adapter = AdapterSettings.model_validate({"method": method})

    def load(*, there: bool, use_gpu: bool) -> list[str]:
        heard.clear()
        monkeypatch.setattr("torch.cuda.is_available", lambda: there)
        load_model(tiny_spec(tmp_path, base, "sft", adapter=adapter, use_gpu=use_gpu))
        return list(heard)

    assert load(there=True, use_gpu=True) == ["gpu 3", "read"]
    assert load(there=False, use_gpu=True) == ["read"]
    assert load(there=True, use_gpu=False) == ["read"]


def steps_of(spec: TrainSpec) -> list[tuple[int, float, float, int]]:
    """Step, loss, learning rate and tokens of every step that the weights went through."""
    root = spec.stage_dir.parent / f"run-{spec.stage_dir.name}"
    root.mkdir(exist_ok=True)
    if not (root / spec.stage).exists():
        (root / spec.stage).symlink_to(spec.stage_dir)
    return [(s.step, s.loss, s.learning_rate, s.tokens) for s in read_metrics(root, spec.stage)]


def test_preferences_are_learned(base: Path, tmp_path: Path) -> None:
    settings = DPO.model_copy(update={"epochs": 3.0, "learning_rate": 5e-3})
    spec = tiny_spec(tmp_path / "dpo", base, "dpo", dpo=settings)
    run(spec)
    losses = [loss for _, loss, _, _ in steps_of(spec)]
    # At the start the model is its own reference: no answer is preferred and the loss is log 2.
    assert losses[0] == pytest.approx(0.6931, abs=1e-3)
    assert sum(losses[-6:]) / 6 < 0.64
    lines = [json.loads(line) for line in (spec.attempt_dir / "metrics.jsonl").open()]
    assert sum(line["extra"]["rewards/accuracies"] for line in lines[-6:]) / 6 > 0.8


def test_pairs_that_cannot_be_used_are_counted(base: Path) -> None:
    tokenizer = load_tokenizer(base)
    row = question(1)
    same = {**row, "rejected": row["chosen"]}
    empty = {**row, "rejected": [{"role": "assistant", "content": ""}]}
    long = {**row, "rejected": [{"role": "assistant", "content": "9" * 300}]}
    pairs = dpo.tokenize_pairs(tokenizer, [row, same, empty, long], max_length=200)
    assert pairs.rejects == {"no_answer": 1, "same": 1, "too_long": 1}
    [pair] = pairs.rows
    assert tokenizer.decode(pair.prompt).endswith("<|im_start|>assistant\n")
    assert tokenizer.decode(pair.chosen) == row["chosen"][0]["content"] + "<|im_end|>"  # type: ignore[index]
    assert tokenizer.decode(pair.rejected) == row["rejected"][0]["content"] + "<|im_end|>"  # type: ignore[index]


def test_merged_adapters_compute_what_was_trained(base: Path, tmp_path: Path) -> None:
    """The published model is the parent plus alpha / rank times B A, in whole weights."""
    from safetensors.torch import load_file

    spec = tiny_spec(tmp_path, base, "sft", sft=SFT, adapter=LORA)
    run(spec)
    adapter = load_file(spec.stage_dir / "adapter" / "adapter_model.safetensors")
    before = load_file(base / "model.safetensors")
    after = load_file(spec.model_dir / "model.safetensors")
    assert set(before) == set(after)
    name = "model.layers.0.self_attn.q_proj"
    low, high = (adapter[f"base_model.model.{name}.lora_{part}.weight"] for part in "AB")
    expected = before[f"{name}.weight"] + 8 / 4 * (high @ low)
    assert after[f"{name}.weight"].allclose(expected, atol=1e-6)
    assert high.abs().max() > 0
    assert after["model.embed_tokens.weight"].equal(before["model.embed_tokens.weight"])
    sizes = [path.stat().st_size for path in (spec.stage_dir / "adapter").glob("*.safetensors")]
    assert sum(sizes) < (base / "model.safetensors").stat().st_size / 2


@pytest.mark.parametrize(
    ("adapter", "precision", "dtype"),
    [
        (AdapterSettings(), "bf16", torch.float32),
        (LORA, "bf16", torch.bfloat16),
        (LORA, "fp32", torch.float32),
    ],
)
def test_weights_that_are_trained_are_fp32_and_frozen_ones_as_they_are_computed_with(
    base: Path, tmp_path: Path, adapter: AdapterSettings, precision: str, dtype: torch.dtype
) -> None:
    spec = tiny_spec(tmp_path, base, "sft", sft=SFT, adapter=adapter, precision=precision)
    assert {weights.dtype for weights in load_model(spec).parameters()} == {dtype}


def test_adapters_go_where_they_are_told(base: Path, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    adapter = LORA.model_copy(update={"target_modules": ("v_proj",)})
    spec = tiny_spec(
        tmp_path, base, "sft", sft=SFT.model_copy(update={"max_steps": 2}), adapter=adapter
    )
    assert run(spec).steps == 2
    weights = load_file(spec.stage_dir / "adapter" / "adapter_model.safetensors")
    assert weights and all("v_proj" in name for name in weights)


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_four_bits_without_the_package_say_what_to_install(base: Path, tmp_path: Path) -> None:
    spec = tiny_spec(tmp_path, base, "sft", sft=SFT, adapter=AdapterSettings(method="qlora"))
    with pytest.raises(UserError, match="pip install bitsandbytes"):
        sft.train(spec, StopRequest(spec.attempt_dir))


@pytest.mark.skipif(find_spec("bitsandbytes") is None, reason="needs bitsandbytes (extra qlora)")
def test_adapters_over_four_bits_learn(base: Path, tmp_path: Path) -> None:
    settings = SFT.model_copy(update={"epochs": 4.0, "learning_rate": 3e-3})
    spec = tiny_spec(tmp_path, base, "sft", sft=settings, adapter=AdapterSettings(method="qlora"))
    run(spec)
    losses = [loss for _, loss, _, _ in steps_of(spec)]
    assert losses[-1] < losses[0] - 0.2
    from safetensors.torch import load_file

    before = load_file(base / "model.safetensors")
    after = load_file(spec.model_dir / "model.safetensors")
    name = "model.embed_tokens.weight"
    assert after[name].equal(before[name]), "frozen weights are published as the parent has them"


def test_a_loss_that_rises_ends_the_stage_with_the_best_weights(base: Path, tmp_path: Path) -> None:
    """A rate so high that the loss on unseen rows gets worse: the step before that is published."""
    settings = SFT.model_copy(update={"epochs": 20.0, "learning_rate": 0.1, "warmup_share": 0.0})
    spec = tiny_spec(
        tmp_path,
        base,
        "sft",
        sft=settings,
        evaluation=EvaluationSettings(every_steps=2, held_out_share=0.25, patience=2),
    )
    outcome = run(spec)
    assert outcome.ended_by == "patience" and outcome.steps < 100
    assert outcome.rows == 48, "a quarter of the 64 rows is kept aside"
    lines = [json.loads(line) for line in (spec.attempt_dir / "metrics.jsonl").open()]
    losses = {line["step"]: line["extra"].get("eval_loss") for line in lines}
    assert [step for step, loss in losses.items() if loss is not None] == [
        step for step in losses if step % 2 == 0
    ]
    measured = {step: loss for step, loss in losses.items() if loss is not None}
    told = [phase for phase in read_phases(spec.attempt_dir) if phase.phase == "evaluation"]
    assert len(told) == len(measured) and all(phase.seconds > 0 for phase in told)
    best = min(measured, key=lambda step: measured[step])
    assert best == outcome.steps - 4, "two evaluations after the best one"
    assert evaluate(spec) == pytest.approx(measured[best], rel=1e-3)


def evaluate(spec: TrainSpec) -> float:
    """The loss of the published model on the rows that the stage kept aside."""
    import torch
    from transformers import AutoModelForCausalLM

    from training.trainers.rows import read_view, with_evaluation

    model = AutoModelForCausalLM.from_pretrained(spec.model_dir)
    tokenizer = load_tokenizer(spec.model_dir)
    rows = sft.usable_rows(spec, tokenizer, read_view(spec.data, ())).rows
    _, held = with_evaluation(spec, rows, lambda unseen: [])
    losses = []
    with torch.no_grad():
        for row in held:
            ids, labels = torch.tensor([row.input_ids]), torch.tensor([row.labels])
            losses.append(model(input_ids=ids, labels=labels).loss.item())
    return sum(losses) / len(losses)


def test_rows_of_the_validation_split_are_evaluated_on(base: Path, tmp_path: Path) -> None:
    unseen = tmp_path / "unseen.parquet"
    pq.write_table(pa.Table.from_pylist([question(number) for number in range(500, 520)]), unseen)
    spec = tiny_spec(
        tmp_path / "run",
        base,
        "dpo",
        dpo=DPO.model_copy(update={"max_steps": 2}),
        eval_data=(unseen,),
        evaluation=EvaluationSettings(every_steps=1),
    )
    outcome = run(spec)
    assert (outcome.rows, outcome.steps) == (64, 2), "no training row is kept aside"
    assert 0 < outcome.last["eval_loss"] < 2


def test_hours_are_counted_over_attempts(base: Path, tmp_path: Path) -> None:
    """What an earlier attempt trained is paid for: the next one ends after its first step."""
    settings = SFT.model_copy(update={"epochs": 1000.0, "max_hours": 1.0})
    first = tiny_spec(tmp_path, base, "sft", sft=settings)
    assert sft.train(first, StopAfter(first.attempt_dir, 3)) is None
    metrics = first.attempt_dir / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.open()]
    lines[0]["seconds"] += 3600.0
    metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert seconds_spent(tmp_path) > 3600
    outcome = run(tiny_spec(tmp_path, base, "sft", attempt=2, sft=settings))
    assert (outcome.steps, outcome.ended_by) == (4, "hours")


def test_grpo_ends_with_its_passes_or_its_tokens(tuned: Path, tmp_path: Path) -> None:
    """Whichever is used up first; tokens are counted on from a checkpoint."""
    passes = RLVR.model_copy(update={"steps": 1000, "epochs": 0.125, "prompts_per_step": 4})
    assert run(tiny_spec(tmp_path / "passes", tuned, "rlvr", rlvr=passes)).steps == 2

    whole = tiny_spec(tmp_path / "whole", tuned, "rlvr", rlvr=RLVR)
    run(whole)
    tokens = [tokens for _, _, _, tokens in steps_of(whole)]
    budget = RLVR.model_copy(update={"token_budget": sum(tokens[:4]) - 1})
    outcome = run(tiny_spec(tmp_path / "budget", tuned, "rlvr", rlvr=budget))
    assert (outcome.steps, outcome.ended_by) == (4, "budget")
    stopped = tiny_spec(tmp_path / "stopped", tuned, "rlvr", rlvr=budget)
    assert grpo.train(stopped, StopAfter(stopped.attempt_dir, 2)) is None
    again = run(tiny_spec(tmp_path / "stopped", tuned, "rlvr", attempt=2, rlvr=budget))
    assert (again.steps, again.ended_by) == (4, "budget")


def test_the_interval_of_saves_follows_from_their_cost(base: Path, tmp_path: Path) -> None:
    settings = SFT.model_copy(update={"max_steps": 8})
    spec = tiny_spec(tmp_path, base, "sft", sft=settings, checkpoint_every_steps=0, mtbf_s=1e6)
    run(spec)
    record = json.loads((spec.stage_dir / "save_interval.json").read_text())
    assert record["measured_at_step"] == 3 and record["save_s"] > 0
    expected = (2 * record["save_s"] * 1e6) ** 0.5
    assert record["interval_s"] == pytest.approx(expected, rel=0.1)
    assert record["interval_steps"] > 100, "failures are rare here, and so are saves"


def test_without_rows_to_evaluate_on_the_setting_is_named(base: Path, tmp_path: Path) -> None:
    spec = tiny_spec(tmp_path, base, "sft", sft=SFT, evaluation=EvaluationSettings(every_steps=2))
    with pytest.raises(UserError, match=r"evaluation\.held_out_share"):
        sft.train(spec, StopRequest(spec.attempt_dir))

"""Answers to held-out prompts while a stage runs: what is asked, what is kept, what stays as is."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from test_trainers import DPO, LORA, SFT, TRAIN, run, steps_of
from tiny_training import StopAfter, tiny_spec, weights_hash

from benchmarks.training.tiny_model import write_tiny_model
from training.phases import read_phases
from training.rollouts import ROLLOUTS_NAME, Rollout, is_kept, read_rollouts
from training.trainers.held_out_answers import HeldOutAnswers, Question
from training.trainers.model_io import load_tokenizer
from training.trainers.rows import prompt_tokens, read_view
from training.trainers.settings import StageName
from training.trainers.shared_settings import EvaluationSettings

EVALUATION = EvaluationSettings(
    every_steps=3, held_out_share=0.25, max_rows=8, answers=2, answer_tokens=12
)
CASES: list[tuple[StageName, dict[str, Any]]] = [
    ("sft", {"sft": SFT.model_copy(update={"max_steps": 6}), "adapter": LORA}),
    ("dpo", {"dpo": DPO.model_copy(update={"max_steps": 6})}),
]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


def likeliest(folder: Path, prompt: list[int], limit: int) -> str:
    """What transformers' own greedy search says."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = load_tokenizer(folder)
    ids = torch.tensor([prompt])
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=limit,
        do_sample=False,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return str(tokenizer.decode(found[0, len(prompt) :], skip_special_tokens=True)).strip()


@pytest.mark.model
@pytest.mark.parametrize(("stage", "settings"), CASES, ids=["sft-lora", "dpo"])
def test_answers_change_nothing_and_go_on_after_a_stop(
    base: Path, tmp_path: Path, stage: StageName, settings: dict[str, Any]
) -> None:
    """Weights and losses are, bit for bit, those of a run that is asked nothing."""
    silent = EVALUATION.model_copy(update={"answers": 0})
    alone = tiny_spec(tmp_path / "alone", base, stage, evaluation=silent, **settings)
    run(alone)
    assert not (alone.attempt_dir / ROLLOUTS_NAME).exists()

    asked = tiny_spec(tmp_path / "asked", base, stage, evaluation=EVALUATION, **settings)
    run(asked)
    assert weights_hash(asked.model_dir) == weights_hash(alone.model_dir)
    assert steps_of(asked) == steps_of(alone)
    told = read_rollouts(asked.stage_dir)
    kinds = ("evaluation", "reference", "evaluation", "reference")
    assert [(one.step, one.outcome) for one in told] == list(product((3, 6), kinds))
    assert all(one.reward is None for one in told)
    phases = [phase.phase for phase in read_phases(asked.attempt_dir)]
    assert phases.count("evaluation") == 2

    stopped = tiny_spec(tmp_path / "stopped", base, stage, evaluation=EVALUATION, **settings)
    assert TRAIN[stage](stopped, StopAfter(stopped.attempt_dir, 4)) is None
    run(tiny_spec(tmp_path / "stopped", base, stage, attempt=2, evaluation=EVALUATION, **settings))
    assert weights_hash(stopped.model_dir) == weights_hash(asked.model_dir)
    assert read_rollouts(stopped.stage_dir) == told


@pytest.mark.model
def test_the_last_answers_are_those_of_the_published_model(base: Path, tmp_path: Path) -> None:
    settings = SFT.model_copy(update={"epochs": 6.0, "learning_rate": 3e-3})
    evaluation = EVALUATION.model_copy(update={"every_steps": 36, "answers": 3})
    spec = tiny_spec(tmp_path, base, "sft", sft=settings, evaluation=evaluation)
    assert run(spec).steps == 36
    told = read_rollouts(spec.stage_dir)
    answers = [one for one in told if one.outcome == "evaluation"]
    assert len(answers) == 3
    tokenizer = load_tokenizer(base)
    rows = {}
    for row in read_view(spec.data, ()):
        ids = prompt_tokens(tokenizer, row["prompt"])
        rows[tokenizer.decode(ids, skip_special_tokens=True).strip()] = ids, row["completion"]
    for answer, reference in zip(answers, told[1::2], strict=True):
        ids, completion = rows[answer.prompt]
        assert answer.answer == likeliest(spec.model_dir, ids, evaluation.answer_tokens)
        assert reference.answer == completion[0]["content"]


@pytest.mark.model
def test_asking_leaves_modes_and_random_numbers_as_they_were(base: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(base).train()
    frozen = next(iter(model.children()))
    frozen.training = False
    modes = [module.training for module in model.modules()]
    state = torch.random.get_rng_state()
    spec = tiny_spec(tmp_path, base, "sft", sft=SFT, evaluation=EVALUATION)
    too_long = Question([5] * 1025, [6])
    questions = [too_long, Question([], [6]), Question([5, 6, 7], [8])]
    asked = HeldOutAnswers(spec, load_tokenizer(base), questions, total_steps=12)
    asked.ask(model, 3)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.random.get_rng_state(), state)
    assert len(read_rollouts(spec.stage_dir)) == 2, "of the one prompt that can be asked"


def test_about_fifty_of_many_evaluations_are_kept(tmp_path: Path) -> None:
    kept = [number for number in range(1, 1001) if is_kept(number, 1000)]
    assert (kept[0], kept[1], kept[-1]) == (1, 20, 1000)
    assert len(kept) == 51
    assert [number for number in range(1, 8) if is_kept(number, 7)] == list(range(1, 8))


def test_a_rollout_of_any_kind_is_read_back(tmp_path: Path) -> None:
    from training.rollouts import append

    attempt = tmp_path / "attempts" / "1"
    attempt.mkdir(parents=True)
    append(attempt, [Rollout(3, "a" * 5000, "</script>", None, "evaluation")])
    (one,) = read_rollouts(tmp_path)
    assert (len(one.prompt), one.answer) == (4000, "</script>")

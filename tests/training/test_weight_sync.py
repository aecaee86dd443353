"""Weights handed to a sampling engine: checked tensor by tensor, and bounded in time.

The engine here is a second transformers model whose tensors are presented as vLLM presents them:
joined projections, 16 bits, a padded table of tokens.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.training.tiny_model import write_tiny_model
from training.stage_job import check_stage
from training.train_config import TrainConfig
from training.trainers.grpo import rollout_arguments
from training.trainers.settings import RlvrSettings
from training.trainers.weight_sync import (
    CheckedSync,
    SyncError,
    checksum,
    compare,
    merged_weights,
)
from workspace.errors import MissingToolError, UserError

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture
def model(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder)


class Engine:
    """Holds a copy of a model's weights as vLLM would."""

    def __init__(self, model: Any) -> None:
        self.tensors: dict[str, Any] = {}
        self.load(model)

    def load(self, model: Any, *, leave_out: str = "") -> None:
        with merged_weights(model) as weights:
            for name, tensor in _as_vllm(weights):
                if name != leave_out:
                    self.tensors[name] = tensor.detach().clone()


def _as_vllm(weights: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    import torch

    for name, tensor in weights.items():
        tensor = tensor.to(torch.bfloat16)
        if ".k_proj." in name or ".v_proj." in name or ".up_proj." in name:
            continue
        for first, joined, parts in (
            ("q_proj", "qkv_proj", ("q_proj", "k_proj", "v_proj")),
            ("gate_proj", "gate_up_proj", ("gate_proj", "up_proj")),
        ):
            if f".{first}." in name:
                tensor = torch.cat([weights[name.replace(first, part)] for part in parts])
                name, tensor = name.replace(first, joined), tensor.to(torch.bfloat16)
        if name == "model.embed_tokens.weight":
            padding = torch.zeros(64, tensor.shape[1], dtype=tensor.dtype)
            tensor = torch.cat([tensor, padding])
        yield name, tensor


def train_a_step(model: Any) -> None:
    import torch

    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.requires_grad:
                tensor.add_(torch.randn_like(tensor), alpha=0.05)


def test_an_engine_with_the_trainers_weights_passes(model: Any) -> None:
    engine = Engine(model)
    train_a_step(model)
    sync = CheckedSync(
        lambda: engine.load(model), lambda: merged_weights(model), lambda: engine.tensors,
        timeout_s=60,
    )  # fmt: skip
    sync()
    # 2 layers of 6 tensors (qkv, o, gate_up, down, two norms), table, norm, output.
    assert sync.compared == len(engine.tensors) == 15


@pytest.mark.parametrize(
    "left",
    [
        "model.layers.1.self_attn.qkv_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.norm.weight",
        "model.embed_tokens.weight",
    ],
)
def test_one_tensor_that_stays_behind_is_named(model: Any, left: str) -> None:
    engine = Engine(model)
    train_a_step(model)
    sync = CheckedSync(
        lambda: engine.load(model, leave_out=left), lambda: merged_weights(model),
        lambda: engine.tensors, timeout_s=60,
    )  # fmt: skip
    with pytest.raises(SyncError, match=left.replace(".", r"\.")):
        sync()


def test_adapters_are_compared_merged_and_stay_apart(model: Any) -> None:
    from peft import LoraConfig, get_peft_model

    adapted = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear"))
    train_a_step(adapted)
    engine = Engine(adapted)
    before = {name: tensor.clone() for name, tensor in adapted.named_parameters()}
    sync = CheckedSync(
        lambda: engine.load(adapted), lambda: merged_weights(adapted), lambda: engine.tensors,
        timeout_s=60,
    )  # fmt: skip
    sync()
    for name, tensor in adapted.named_parameters():
        assert tensor.allclose(before[name], atol=1e-6), "the adapter was left merged"
    train_a_step(adapted)
    with merged_weights(adapted) as ours, pytest.raises(SyncError):
        compare(ours, engine.tensors)


def test_what_cannot_be_compared_is_no_match(model: Any) -> None:
    engine = Engine(model)
    with merged_weights(model) as ours:
        with pytest.raises(SyncError, match="no counterpart here, like experts"):
            compare(ours, {**engine.tensors, "experts.w13_weight": ours["model.norm.weight"]})
        with pytest.raises(SyncError, match="in the engine"):
            compare(ours, {"model.norm.weight": ours["model.norm.weight"][:8]})


def test_a_checksum_sees_one_bit_and_one_swap() -> None:
    import torch

    tensor = torch.randn(1000, 37, generator=torch.Generator().manual_seed(1))
    same = checksum(tensor)
    assert checksum(tensor.clone()) == same == checksum(tensor.t().contiguous().t())
    changed = tensor.clone()
    changed.view(torch.int32)[999, 36] ^= 1
    assert checksum(changed) != same
    swapped = tensor.clone()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert checksum(swapped) != same
    assert checksum(torch.zeros(5)) != checksum(torch.zeros(6))


def test_a_hand_over_that_hangs_ends_the_process_and_shows_where() -> None:
    code = (
        "import contextlib, time\n"
        "from training.trainers.weight_sync import CheckedSync\n"
        "def stuck_in_a_broadcast(): time.sleep(600)\n"
        "CheckedSync(stuck_in_a_broadcast, contextlib.nullcontext, None, timeout_s=1.0)()\n"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "Timeout" in done.stderr and "stuck_in_a_broadcast" in done.stderr
    assert time.monotonic() - started < 300


def test_a_hand_over_in_time_leaves_no_timer() -> None:
    code = (
        "import contextlib, time\n"
        "from training.trainers.weight_sync import CheckedSync\n"
        "CheckedSync(lambda: None, contextlib.nullcontext, None, timeout_s=3.0)()\n"
        "time.sleep(4)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_vllm_is_asked_for_before_a_job_is_submitted(folder: Path) -> None:
    def config(**changes: Any) -> TrainConfig:
        settings = {"workspace": "w", "rlvr": {"rollouts": "vllm"}, **changes}
        return TrainConfig.model_validate(settings)

    with pytest.raises(UserError, match="set gpus_per_node"):
        check_stage(config(), "rlvr", folder)
    with pytest.raises(MissingToolError, match="pip install vllm"):
        check_stage(config(gpus_per_node=1), "rlvr", folder)


def test_what_trl_is_told_of_the_engine() -> None:
    """Names that `GRPOConfig` has; it refuses others."""
    from trl import GRPOConfig

    for settings in (
        RlvrSettings(),
        RlvrSettings(rollouts="vllm"),
        RlvrSettings(rollouts="vllm", vllm_mode="server", vllm_server="http://node1:8000"),
    ):
        config = GRPOConfig(output_dir="x", use_cpu=True, bf16=False, **rollout_arguments(settings))
        assert config.use_vllm == (settings.rollouts == "vllm")

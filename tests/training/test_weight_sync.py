"""Weights handed to a sampling engine: checked tensor by tensor, and bounded in time.

TRL's own hand-over runs; the engine behind it takes and holds tensors as vLLM's models do: joined
projections, 16 bits, a padded table of tokens.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from benchmarks.training.tiny_model import write_tiny_model
from training.stage_job import check_stage
from training.train_config import TrainConfig
from training.trainers.grpo import rollout_arguments
from training.trainers.settings import RlvrSettings
from training.trainers.weight_sync import (
    CheckedSync,
    SyncError,
    check_vllm,
    checksum,
    compare,
    handed,
    merged_parameters,
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
    """Holds weights as vLLM's model does: joined, in 16 bits, its table padded."""

    def __init__(self, model: Any, *, kind: str = "bfloat16") -> None:
        import torch

        self.tensors: dict[str, Any] = {}
        self.deaf_to = ""  # a tensor that stays as it was
        shapes: dict[str, list[int]] = {}
        for name, tensor in model.named_parameters():
            joined, _ = _joined(name)
            rows = shapes[joined][0] if joined in shapes else 0
            shapes[joined] = [rows + tensor.shape[0], *tensor.shape[1:]]
        for name, shape in shapes.items():
            rows = shape[0] + 64 * (name == "model.embed_tokens.weight")
            self.tensors[name] = torch.zeros(rows, *shape[1:], dtype=getattr(torch, kind))
        self._heights = {name: tensor.shape[0] for name, tensor in model.named_parameters()}

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        yield from self.tensors.items()

    def load_weights(self, weights: Iterable[tuple[str, Any]]) -> None:
        """As `vllm.model_executor.models.llama` does: each into its part of the joined one."""
        for name, tensor in weights:
            joined, before = _joined(name)
            start = sum(self._heights[part] for part in before)
            if joined != self.deaf_to:
                self.tensors[joined][start : start + tensor.shape[0]].copy_(tensor)


def _joined(name: str) -> tuple[str, list[str]]:
    """The engine's name, and what comes before ours in that tensor."""
    for joined, parts in (
        ("qkv_proj", ["q_proj", "k_proj", "v_proj"]),
        ("gate_up_proj", ["gate_proj", "up_proj"]),
    ):
        for at, part in enumerate(parts):
            if f".{part}." in name:
                before = [name.replace(f".{part}.", f".{other}.") for other in parts[:at]]
                return name.replace(f".{part}.", f".{joined}."), before
    return name, []


class Colocated:
    """The names by which TRL reaches a colocated engine."""

    def __init__(self, engine: Engine) -> None:
        self.llm_engine = self.model_executor = self.driver_worker = self.model_runner = self
        self.model = engine

    def reset_prefix_cache(self) -> None: ...


def checked_by_trl(model: Any, engine: Engine, *, mode: str = "colocate") -> CheckedSync:
    """TRL's own hand-over to `engine`, checked; only the start of a real vLLM is left out."""
    from accelerate import Accelerator
    from trl.distributed import DistributedBackend
    from trl.generation.vllm_generation import VLLMGeneration

    accelerator = Accelerator(cpu=True)
    generation = object.__new__(VLLMGeneration)
    generation.__dict__.update(
        model=model, mode=mode, accelerator=accelerator, enable_sleep_mode=False,
        _dist=DistributedBackend(accelerator), llm=Colocated(engine),
    )  # fmt: skip
    trainer = SimpleNamespace(accelerator=accelerator, model=model, vllm_generation=generation)
    check_vllm(trainer, timeout_s=60)
    checked = generation.sync_weights
    assert isinstance(checked, CheckedSync)
    return checked


def adapted(model: Any) -> Any:
    """With adapters that say something, in the types that our trainers load with bf16."""
    import torch
    from peft import LoraConfig, get_peft_model

    frozen = model.to(torch.bfloat16)
    return get_peft_model(frozen, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))


def train_a_step(model: Any) -> None:
    import torch

    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.requires_grad:
                tensor.add_(torch.randn_like(tensor), alpha=0.05)


def test_an_engine_with_the_trainers_weights_passes(model: Any) -> None:
    engine = Engine(model)
    sync = checked_by_trl(model, engine)
    for _ in range(2):
        train_a_step(model)
        sync()
        # 2 layers of 6 tensors (qkv, o, gate_up, down, two norms), table, norm, output.
        assert sync.compared == len(engine.tensors) == 15


@pytest.mark.parametrize("with_adapters", [False, True], ids=["whole", "adapters"])
@pytest.mark.parametrize(
    "left",
    [
        "model.layers.1.self_attn.qkv_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
        "model.norm.weight",
        "model.embed_tokens.weight",
    ],
)
def test_one_tensor_that_stays_behind_is_named(
    model: Any, left: str, *, with_adapters: bool
) -> None:
    engine = Engine(model)
    trained = adapted(model) if with_adapters else model
    sync = checked_by_trl(trained, engine)
    train_a_step(trained)
    engine.deaf_to = left
    with pytest.raises(SyncError, match=left.replace(".", r"\.")):
        sync()


def test_adapters_in_16_bits_pass_every_time_and_the_frozen_weights_stay(model: Any) -> None:
    """Merging in place and back again moves bf16 weights, so that sums of two merges differ."""
    import torch

    engine = Engine(model)
    trained = adapted(model)
    frozen = {
        name: tensor.clone() for name, tensor in trained.named_parameters() if ".lora_" not in name
    }
    sync = checked_by_trl(trained, engine)
    answers = []
    for _ in range(5):
        train_a_step(trained)
        sync()
        assert sync.compared == 15
        answers.append(engine.tensors["model.layers.0.self_attn.o_proj.weight"].clone())
    assert not any(torch.equal(one, other) for one, other in pairwise(answers))
    for name, tensor in trained.named_parameters():
        if ".lora_" not in name:
            assert torch.equal(tensor, frozen[name]), f"{name} has drifted"


def test_what_is_handed_over_is_what_peft_merges(model: Any) -> None:
    """Held against `merge_and_unload` in fp32, where nothing is rounded away."""
    import torch
    from peft import LoraConfig, get_peft_model

    trained = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    train_a_step(trained)
    mine = {name: tensor.clone() for name, tensor in merged_parameters(trained)}
    whole = dict(trained.merge_and_unload().named_parameters())
    assert mine.keys() == whole.keys()
    for name, tensor in whole.items():
        torch.testing.assert_close(mine[name], tensor, msg=name)


def test_a_server_is_refused_since_it_cannot_be_asked(model: Any) -> None:
    with pytest.raises(UserError, match="server gives none of its weights away"):
        checked_by_trl(model, Engine(model), mode="server")
    with pytest.raises((ValidationError, UserError), match="set colocate"):
        RlvrSettings.model_validate({"rollouts": "vllm", "vllm_mode": "server"})


def test_what_cannot_be_compared_is_no_match(model: Any) -> None:
    import torch

    engine = Engine(model)
    checked_by_trl(model, engine)()
    ours = {name: handed(tensor, [torch.bfloat16]) for name, tensor in model.named_parameters()}
    assert compare(ours, engine.tensors) == 15
    norm = engine.tensors["model.norm.weight"]
    for theirs, words in (
        ({**engine.tensors, "experts.w13_weight": norm}, "no counterpart here, like experts"),
        ({**engine.tensors, "model.norm.weight": norm[:8]}, "in the engine"),
        ({}, "21 tensor.s. handed over are not in the engine"),
        ({"model.norm.weight": norm}, "20 tensor.s. handed over are not in the engine"),
    ):
        with pytest.raises(SyncError, match=words):
            compare(ours, theirs)
    with pytest.raises(SyncError, match="which gives none"):
        compare({}, {})


def test_a_sync_that_hands_nothing_over_is_no_match(model: Any) -> None:
    engine = Engine(model)
    checked_by_trl(model, engine)()
    with pytest.raises(SyncError, match="no counterpart"):
        CheckedSync(lambda: None, lambda: engine.tensors, timeout_s=60)()


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


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
def test_sums_of_parts_make_that_of_the_whole(kind: str) -> None:
    import torch

    first, last = (torch.randn(rows, 37).to(getattr(torch, kind)) for rows in (1000, 3))
    whole = checksum(torch.cat([first, last]))
    assert checksum(first).then(checksum(last)) == whole
    assert checksum(last).then(checksum(first)) != whole


def test_a_hand_over_that_hangs_ends_the_process_and_shows_where() -> None:
    code = (
        "import time\n"
        "from training.trainers.weight_sync import CheckedSync\n"
        "def stuck_in_a_broadcast(): time.sleep(600)\n"
        "CheckedSync(stuck_in_a_broadcast, dict, timeout_s=1.0)()\n"
    )
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "Timeout" in done.stderr and "stuck_in_a_broadcast" in done.stderr
    assert time.monotonic() - started < 300


def test_a_hand_over_in_time_leaves_no_timer() -> None:
    code = (
        "import time, torch\n"
        "from training.trainers.weight_sync import CheckedSync\n"
        "theirs = {'norm.weight': torch.ones(8)}\n"
        "sync = CheckedSync(lambda: list(sync.watched(theirs.items())), lambda: theirs,"
        " timeout_s=5.0)\n"
        "sync()\n"
        "assert sync.compared == 1\n"
        "time.sleep(6)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_vllm_is_asked_for_before_a_job_is_submitted(folder: Path) -> None:
    def config(**changes: Any) -> TrainConfig:
        settings = {"workspace": "w", "rlvr": {"rollouts": "vllm"}, **changes}
        return TrainConfig.model_validate(settings)

    with pytest.raises(UserError, match="set gpus_per_node"):
        check_stage(config(), "rlvr", folder)
    with pytest.raises(UserError, match=r"set adapter\.method lora"):
        check_stage(config(gpus_per_node=1, adapter={"method": "qlora"}), "rlvr", folder)
    with pytest.raises(MissingToolError, match="pip install vllm"):
        check_stage(config(gpus_per_node=1), "rlvr", folder)


def test_what_trl_is_told_of_the_engine() -> None:
    """Names that `GRPOConfig` has; it refuses others."""
    from trl import GRPOConfig

    for settings in (
        RlvrSettings(),
        RlvrSettings(rollouts="vllm"),
    ):
        config = GRPOConfig(output_dir="x", use_cpu=True, bf16=False, **rollout_arguments(settings))
        assert config.use_vllm == (settings.rollouts == "vllm")

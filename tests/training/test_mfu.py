from __future__ import annotations

from pathlib import Path

import pytest
from tiny_training import tiny_spec

from training.mfu import mfu_of
from training.planner.hardware import gpu_of_device
from training.trainers.reporting import require_reporters
from training.trainers.settings import CptSettings, StageName
from training.trainers.spec import TrainSpec
from workspace.errors import MissingToolError


@pytest.mark.parametrize(
    ("device", "known"),
    [
        ("NVIDIA H100 80GB HBM3", "H100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB"),
        ("NVIDIA RTX A6000", "A6000"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA H100 PCIe", None),  # 756 TFLOPS, not 989
        ("NVIDIA H100 NVL", None),
        ("Tesla V100-SXM2-16GB", None),
    ],
)
def test_names_that_drivers_give(device: str, known: str | None) -> None:
    gpu = gpu_of_device(device)
    assert (gpu.name if gpu else None) == known


def spec_of(folder: Path, stage: StageName, **changes: object) -> TrainSpec:
    settings = {"precision": "bf16", "use_gpu": True, **changes}
    return tiny_spec(folder, Path("llama-3.1-8b"), stage, **settings)


def test_a_published_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS's Llama-3.1-8B on H100s with sequences of 8192 tokens: 6785 tokens/s a GPU.

    By PaLM's appendix B that is 6785 (6 x 8.03e9 + 12 x 32 x 4096 x 8192) of 989.4e12; its
    authors say 39.7 %, leaving out the embedding's 0.53e9 weights.
    """
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100 80GB HBM3")
    cpt = CptSettings(sequence_length=8192, rows_per_step=32)
    spec = spec_of(tmp_path, "cpt", cpt=cpt)
    tokens = 32 * 8192
    assert mfu_of(spec, 32)(tokens, tokens / (32 * 6785)) == pytest.approx(0.4188, rel=2e-3)
    assert mfu_of(spec, 32)(tokens, 0.0) is None
    assert mfu_of(spec_of(tmp_path, "rlvr"), 32)(tokens, 1.0) is None
    fp32 = spec_of(tmp_path, "cpt", precision="fp32")
    assert mfu_of(fp32, 32)(tokens, 1.0) is None

    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Somebody's GPU")
    assert mfu_of(spec, 32)(tokens, 1.0) is None


def test_a_cpu_has_no_utilisation(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, "cpt", use_gpu=False)
    assert mfu_of(spec, 1)(1000, 1.0) is None


def test_a_service_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match="pip install mlflow"):
        require_reporters(("mlflow",))
    require_reporters(())

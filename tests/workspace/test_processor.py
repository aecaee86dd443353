"""What is read of the processor, beside what torch finds by asking it."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from training.train_config import TrainConfig
from workspace import processor

INTEL = "flags\t\t: fpu vme avx512f avx512_bf16 amx_tile amx_bf16\n"
ZEN_3 = "flags\t\t: fpu vme avx2 vaes clzero\n"
ARM = "Features\t: fp asimd bf16 i8mm\n"
OLD_ARM = "Features\t: fp asimd\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="torch tells it of x86 alone")
def test_it_is_what_torch_says() -> None:
    import torch

    wanted = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    assert processor.multiplies_bf16() == wanted


@pytest.mark.parametrize(
    ("text", "precision"), [(INTEL, "bf16"), (ARM, "bf16"), (ZEN_3, "fp32"), (OLD_ARM, "fp32")]
)
def test_training_takes_the_arithmetic_that_is_quick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, precision: str
) -> None:
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "cpuinfo")
    (tmp_path / "cpuinfo").write_text(text)
    config = TrainConfig(workspace=tmp_path)
    assert config.arithmetic == precision
    # It is part of what a run is known by: other arithmetic gives another model.
    assert config.output_settings()["precision"] == precision
    for chosen in ("bf16", "fp32"):
        assert TrainConfig(workspace=tmp_path, precision=chosen).arithmetic == chosen
    assert TrainConfig(workspace=tmp_path, gpus_per_node=8).arithmetic == "bf16"


def test_a_machine_that_tells_nothing_computes_in_float32(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor, "_CPUINFO", tmp_path / "absent")
    assert not processor.multiplies_bf16()

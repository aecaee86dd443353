"""A data set to train the tiny model on, and runs and attempts that do it."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from training.train import TrainConfig
from training.trainers.settings import RlvrSettings, SftSettings, StageName
from training.trainers.shared_settings import ParallelLayout
from training.trainers.spec import TrainSpec
from training.trainers.stopping import StopRequest
from workspace.manifest import Manifest, describe_file, now, write_manifest


def question(number: int) -> dict[str, object]:
    """A row with the columns of all views."""
    noise = random.Random(number)
    left, right = noise.randint(0, 9), noise.randint(0, 9)
    return {
        "prompt": [{"role": "user", "content": f"{left}+{right}{'?' * noise.randint(1, 30)}"}],
        "completion": [{"role": "assistant", "content": str(left + right)}],
        "chosen": [{"role": "assistant", "content": str(left + right)}],
        "rejected": [{"role": "assistant", "content": str(left + right + noise.randint(1, 9))}],
        "text": f"{left} and {right} make {left + right}. " * 3,
        "verifier": "exact",
        "ground_truth": json.dumps({"value": str(left + right)}),
        "licence": "CC0-1.0",
    }


def write_dataset(workspace: Path, rows: list[dict[str, object]], key: str = "d" * 16) -> None:
    folder = workspace / "datasets" / "dsm"
    for view in ("cpt", "trl_sft", "trl_dpo", "trl_grpo"):
        (folder / "views" / view).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows), folder / "views" / view / "train.parquet")
        unseen = [question(number) for number in range(1000, 1016)]
        pq.write_table(pa.Table.from_pylist(unseen), folder / "views" / view / "validation.parquet")
    write_manifest(
        folder,
        Manifest(
            stage="dataset",
            key=key,
            fingerprint="f" * 16,
            settings={},
            inputs={"corpus": "c" * 16, "graph": "g" * 16},
            code_version="test",
            created=now(),
            files=[describe_file(folder, p) for p in sorted(folder.rglob("*.parquet"))],
        ),
    )


def tiny_config(workspace: Path, base: Path, *, steps: int, **changes: object) -> TrainConfig:
    """About `steps` SFT steps of a few hundredths of a second, no GRPO."""
    rows = 64
    settings: dict[str, object] = {
        "workspace": workspace,
        "base_model": str(base),
        "precision": "fp32",
        "sft": SftSettings(
            epochs=steps * 8 / rows, rows_per_step=8, tokens_per_forward=160, learning_rate=1e-3
        ),
        "rlvr": RlvrSettings(steps=0),
        "checkpoint_every_steps": 10,
        "cpus_per_process": 1,
        **changes,
    }
    return TrainConfig(**settings)  # type: ignore[arg-type]


def tiny_spec(
    folder: Path, base: Path, stage: StageName, *, attempt: int = 1, **changes: object
) -> TrainSpec:
    """One attempt of a stage over 64 questions, for a trainer called in this process."""
    data = folder / "rows.parquet"
    if not data.exists():
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.Table.from_pylist([question(number) for number in range(64)]), data)
    settings: dict[str, object] = {
        "seed": 0,
        "precision": "fp32",
        "use_gpu": False,
        "checkpoint_every_steps": 4,
        "keep_checkpoints": 2,
        "layout": ParallelLayout(zero=0),
        **changes,
    }
    attempt_dir = folder / "attempts" / str(attempt)
    attempt_dir.mkdir(parents=True, exist_ok=True)
    return TrainSpec(
        stage=stage,
        attempt=attempt,
        stage_dir=folder,
        attempt_dir=attempt_dir,
        parent=base,
        data=(data,),
        **settings,  # type: ignore[arg-type]
    )


class StopAfter(StopRequest):
    """Asks for a stop after so many steps."""

    def __init__(self, attempt_dir: Path, steps: int) -> None:
        super().__init__(attempt_dir)
        self._steps = steps

    def seen_here(self) -> bool:
        self._steps -= 1
        return self._steps <= 0


def flip_a_bit(path: Path) -> None:
    """In the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def weights_hash(model: Path) -> str:
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()

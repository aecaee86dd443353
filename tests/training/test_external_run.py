"""Our contract around an external program that runs: crash, stop, what is published."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pytest
from tiny_training import question, tiny_config, write_dataset

from benchmarks.training.tiny_model import write_tiny_model
from training.failure_texts import TrainingStoppedError
from training.progress import TrainProgress
from training.train import TrainConfig, plan, preview, train
from training.trainers.settings import (
    CptSettings,
)
from training.trainers.shared_settings import (
    ExternalSettings,
)

# A program that behaves like torchtitan on disk: it reads the file that it is given, continues from
# its newest checkpoint, and writes its last step as safetensors.
STAND_IN = """
import json, os, shutil, sys, time, tomllib
from pathlib import Path
config = tomllib.loads(Path(sys.argv[sys.argv.index("--job.config_file") + 1]).read_text())
rank = int(os.environ.get("RANK", "0"))
folder = Path(config["job"]["dump_folder"]) / "checkpoint"
done = max((int(p.parent.name[5:]) for p in folder.glob("step-*/.metadata")), default=0)
orders = Path(os.environ["STAND_IN_ORDERS"])
if rank == 0:
    with (orders / "starts").open("a") as log:
        log.write(f"{done}\\\\n")
for step in range(done + 1, config["training"]["steps"] + 1):
    time.sleep(0.05)
    if rank == 0 and step % config["checkpoint"]["interval"] == 0:
        (folder / f"step-{step}").mkdir(parents=True)
        (folder / f"step-{step}" / ".metadata").touch()
    if step == 10 and (orders / "crash").exists():
        (orders / "crash").unlink(missing_ok=True)
        sys.exit(75)
    while step == 12 and (orders / "wait").exists():
        time.sleep(0.05)
last = folder / f"step-{config['training']['steps']}"
last.mkdir(parents=True, exist_ok=True)
if rank == 0:
    source = Path(config["checkpoint"]["initial_load_path"]) / "model.safetensors"
    shutil.copyfile(source, last / "model-00001-of-00001.safetensors")
"""


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture
def external_run(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    """A run of a program that stands in for torchtitan, and a folder of orders for it."""
    package = tmp_path / "site" / "torchtitan"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "train.py").write_text(STAND_IN.replace("\\\\n", "\\n"))
    (tmp_path / "orders").mkdir()
    monkeypatch.setenv("STAND_IN_ORDERS", str(tmp_path / "orders"))
    path = os.pathsep.join([str(package.parent), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path.rstrip(os.pathsep))
    write_dataset(tmp_path / "workspace", [question(number) for number in range(64)])
    return tiny_config(
        tmp_path / "workspace",
        base,
        steps=1,
        stages=("cpt",),
        cpt=CptSettings(
            backend="external", sequence_length=16, rows_per_step=8, epochs=50, max_steps=20
        ),
        external=ExternalSettings(overrides={"model.name": "llama3", "model.flavor": "tiny"}),
        checkpoint_every_steps=4,
    )


def test_an_external_run_outlives_a_crash_and_is_published(
    external_run: TrainConfig, tmp_path: Path
) -> None:
    """It ended with 75, which is ours to say: the attempt counts as failed, the next goes on."""
    (tmp_path / "orders" / "crash").touch()
    result = train(external_run)
    assert result.manifest.counts_out == {"cpt_steps": 20}
    stage = plan(external_run).folder.stage("cpt")
    outcome = json.loads((stage.attempt(1) / "outcome.json").read_text())
    assert (outcome["state"], outcome["newest_checkpoint"]) == ("failed", 8)
    assert (tmp_path / "orders" / "starts").read_text().split() == ["0", "8"]
    from transformers import AutoModelForCausalLM

    AutoModelForCausalLM.from_pretrained(result.directory, local_files_only=True)


def test_a_stopped_external_run_goes_on_from_its_checkpoint(
    external_run: TrainConfig, tmp_path: Path
) -> None:
    (tmp_path / "orders" / "wait").touch()
    folder = plan(external_run).folder.stage("cpt").root / "external" / "checkpoint"
    seen: list[TrainProgress] = []
    with pytest.raises(TrainingStoppedError, match="newest checkpoint: step 12"):
        train(
            external_run,
            observe=seen.append,
            should_stop=lambda: (folder / "step-12" / ".metadata").exists(),
        )
    assert seen[-1].state == "resumable"
    (tmp_path / "orders" / "wait").unlink()
    train(external_run)
    assert (tmp_path / "orders" / "starts").read_text().split() == ["0", "12"]


def test_a_dry_run_writes_what_would_be_told(external_run: TrainConfig) -> None:
    text = preview(external_run)
    folder = plan(external_run).folder.stage("cpt").root / "dry-run"
    assert "cpt: external, 1 rank" in text and str(folder) in text
    told = tomllib.loads((folder / "train.toml").read_text())
    assert told["training"]["steps"] == 20
    assert not (plan(external_run).folder.root / "run.json").exists(), "nothing was begun"
    assert not (plan(external_run).folder.root / "data").exists(), "no rows are held"

"""Metrics for the services that people look at already: TensorBoard, Weights & Biases, MLflow.

The Hugging Face trainers send them; each service reads its own environment variables
(WANDB_PROJECT, MLFLOW_TRACKING_URI, ...). TensorBoard's files go to the attempt's folder.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path

from training.trainers.settings import Reporter
from workspace.errors import MissingToolError

_PACKAGES: dict[Reporter, tuple[str, ...]] = {
    "tensorboard": ("tensorboard", "tensorboardX"),  # either will do
    "wandb": ("wandb",),
    "mlflow": ("mlflow",),
}


def require_reporters(reporters: Sequence[Reporter]) -> None:
    """Raise `MissingToolError` naming the package of a service that cannot be sent to."""
    for reporter in reporters:
        packages = _PACKAGES[reporter]
        if not any(importlib.util.find_spec(package) for package in packages):
            raise MissingToolError(
                f"report_to {reporter}: the package {packages[0]} is not installed where the "
                f"trainer runs: `pip install {packages[0]}`, or take it out of report_to"
            )


def prepare_reporters(reporters: Sequence[Reporter], attempt_dir: Path) -> None:
    """Check that they are installed, and say where TensorBoard's files go."""
    require_reporters(reporters)
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(attempt_dir / "tensorboard"))

"""Metrics for the services that people look at already: TensorBoard, Weights & Biases, MLflow.

The Hugging Face trainers send them, and the fsdp trainer through the same classes of transformers
(`Services`); each service reads its own environment variables (WANDB_PROJECT, MLFLOW_TRACKING_URI,
...). TensorBoard's files go to the attempt's folder.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.metrics import StepMetrics
from training.trainers.shared_settings import Reporter
from training.trainers.spec import TrainSpec
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


class Services:
    """Sends steps to `spec.report_to`, for a trainer that is none of Hugging Face's."""

    def __init__(self, spec: TrainSpec) -> None:
        self._callbacks: list[Any] = []
        if not spec.report_to:
            return
        prepare_reporters(spec.report_to, spec.attempt_dir)
        from transformers import TrainerControl, TrainerState, TrainingArguments
        from transformers.integrations import get_reporting_integration_callbacks

        self._state = TrainerState(is_world_process_zero=True, is_local_process_zero=True)
        self._control = TrainerControl()
        self._arguments = TrainingArguments(
            output_dir=str(spec.attempt_dir), report_to=list(spec.report_to), use_cpu=True
        )
        self._callbacks = [kind() for kind in get_reporting_integration_callbacks(spec.report_to)]
        self._tell("on_train_begin")

    def log(self, step: StepMetrics) -> None:
        """Send a step's figures."""
        if not self._callbacks:
            return
        self._state.global_step, self._state.epoch = step.step, step.epoch
        figures = {
            "loss": step.loss,
            "learning_rate": step.learning_rate,
            "grad_norm": step.grad_norm,
            "tokens_per_second": step.tokens_per_s,
            **step.extra,
        }
        self._tell("on_log", logs=figures)

    def close(self) -> None:
        """Training is over."""
        self._tell("on_train_end")

    def _tell(self, event: str, **more: Any) -> None:
        for callback in self._callbacks:
            getattr(callback, event)(
                self._arguments, self._state, self._control, model=None, **more
            )

"""Tasks of the data sets: corpus and graph -> verified training and test rows."""

from __future__ import annotations

from tasks.stage import stage_tasks
from training.data import build

BUILD_DATASETS = stage_tasks("build_datasets", build, unit="pages")

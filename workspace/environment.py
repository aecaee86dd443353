"""Process environment that every part of the pipeline needs, set in one place.

Libraries below us phone home, look for a model hub or oversubscribe cores unless told otherwise.
A user's own setting always wins (`setdefault`). Importing `workspace` applies it, and every
top-level package imports `workspace` before it imports such a library.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

# The folder of this code: workers and nodes start there, so relative paths are from there.
CHECKOUT: Final = Path(__file__).resolve().parent.parent

DEFAULTS: Final[dict[str, str]] = {
    # No network at run time: models and data come from local directories.
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    # No telemetry, no adverts.
    "DO_NOT_TRACK": "1",
    "SCARF_NO_ANALYTICS": "1",
    "UNSTRUCTURED_DISABLE_NOTICE": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    # Processes are our unit of parallelism. Spinning OpenMP threads make two busy cores slower
    # than one (measured on SmolLM2 training: 56 against 143 tokens/s).
    "OMP_NUM_THREADS": "1",
    "OMP_WAIT_POLICY": "PASSIVE",
    "TOKENIZERS_PARALLELISM": "false",
    # Bars of libraries below us; ours are in workspace.progress.
    "TQDM_DISABLE": "1",
}


def apply() -> None:
    """Set each default that the environment does not already hold."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)

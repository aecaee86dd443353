"""Options that all our flows share."""

from __future__ import annotations

import logging
from typing import Any

from flows._api import PACKAGES
from flows._console import outlive_the_console


def flow_options(name: str, run_name: str) -> dict[str, Any]:
    """Keyword arguments for `prefect.flow`; `run_name` is a template over the parameters.

    Also lets the libraries' INFO lines through, which Prefect ships to the run's page (it copies
    handlers to the loggers in PREFECT_LOGGING_EXTRA_LOGGERS, and leaves their level at WARNING),
    and lets a run outlive the worker that reads its console.
    """
    outlive_the_console()
    for package in PACKAGES:
        logging.getLogger(package).setLevel(logging.INFO)
    return {"name": name, "flow_run_name": run_name, "persist_result": False, "retries": 0}

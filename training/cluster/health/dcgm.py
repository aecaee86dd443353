"""NVIDIA's own diagnostics, `dcgmi diag`, where DCGM is installed.

Its JSON has no published schema and changes between releases; every test result that it holds has
a `status`, which is what is looked for.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

from training.cluster.health.results import Severity, Verdict, combine

_SEVERITY = {"fail": Severity.DRAIN, "warn": Severity.WARN}


def run_dcgm(level: int) -> str:
    """What `dcgmi diag -r LEVEL -j` prints. Its exit code is not 0 when a test failed."""
    done = subprocess.run(
        ["dcgmi", "diag", "-r", str(level), "-j"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if not done.stdout.strip():
        raise RuntimeError(done.stderr.strip() or f"dcgmi ended with {done.returncode}")
    return done.stdout


def judge_dcgm(printed: str) -> Verdict:
    """The tests that failed or warn, by name."""
    try:
        # A line about the host engine may stand before the document.
        document = json.loads(printed[printed.index("{") :])
    except ValueError:
        return Verdict(Severity.WARN, "dcgmi printed no JSON")
    results = list(_results(document, ""))
    if not results:
        return Verdict(Severity.WARN, "dcgmi reported no test")
    verdicts = [
        Verdict(_SEVERITY[status], f"{name}: {status}{said}")
        for name, status, said in results
        if status in _SEVERITY
    ]
    return combine(verdicts, f"{len(results)} results")


def _results(value: Any, name: str) -> Iterator[tuple[str, str, str]]:
    """(test, status, what it said) at any depth."""
    if isinstance(value, list):
        for item in value:
            yield from _results(item, name)
    elif isinstance(value, dict):
        name = str(value.get("name", name))
        if isinstance(value.get("status"), str):
            yield name, value["status"].lower(), _said(value)
        for item in value.values():
            yield from _results(item, name)


def _said(result: dict[str, Any]) -> str:
    warnings = result.get("warnings", [])
    for warning in warnings if isinstance(warnings, list) else [warnings]:
        text = warning.get("warning", "") if isinstance(warning, dict) else str(warning)
        if text:
            return f" ({text[:100]})"
    return ""

"""Typed access to a row's ground truth, which is always a JSON string."""

from __future__ import annotations

import json
from typing import Any, NoReturn

from workspace.errors import UserError


def load(kind: str, ground_truth: str) -> dict[str, Any]:
    """The JSON object in `ground_truth`. Raises `UserError` when it is not one."""
    try:
        value = json.loads(ground_truth)
    except ValueError as error:
        raise UserError(f"ground truth of a {kind} row is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"ground truth of a {kind} row must be a JSON object, not {value!r}")
    return value


def text(kind: str, truth: dict[str, Any], field: str) -> str:
    """A string field that is not empty."""
    value = truth.get(field)
    if not isinstance(value, str) or not value.strip():
        wrong(kind, field, "a text that is not empty", value)
    return value


def texts(kind: str, truth: dict[str, Any], field: str) -> list[str]:
    """A list of at least one string."""
    value = truth.get(field)
    if not isinstance(value, list) or not value or not all(isinstance(v, str) for v in value):
        wrong(kind, field, "a list of texts", value)
    return value


def number(kind: str, truth: dict[str, Any], field: str, default: float | None = None) -> float:
    """A number; a default when the field is absent and one is given."""
    value = truth.get(field, default)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        wrong(kind, field, "a number", value)
    return float(value)


def wrong(kind: str, field: str, wanted: str, value: object) -> NoReturn:
    raise UserError(f"ground truth of a {kind} row: {field!r} must be {wanted}, not {value!r}")

"""Numbers as questions and answers write them, and near misses of a number."""

from __future__ import annotations

import random


def format_number(value: float) -> str:
    """Shortest plain form: 12, 0.35, 1e-14. At most 12 significant digits."""
    if value.is_integer() and abs(value) < 1e12:
        return str(int(value))
    return f"{value:.12g}"


def near_misses(value: float, rng: random.Random, count: int = 2) -> tuple[str, ...]:
    """Wrong values that look right: a tenth more, a sign or a power of ten off, one beside it."""
    candidates = [value * 1.1 + (value == 0), value * 10 + (value == 0) * 2, -value - (value == 0)]
    if value.is_integer():
        candidates += [value + 1, value - 1]
    texts = {format_number(c) for c in candidates} - {format_number(value)}
    return tuple(rng.sample(sorted(texts), min(count, len(texts))))

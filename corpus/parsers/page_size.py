"""How finely a page is rendered: the wanted resolution, or less when the page is enormous."""

from __future__ import annotations

import math

POINTS_PER_INCH = 72


def fit_dpi(width_pt: float, height_pt: float, dpi: float, max_pixels: int) -> float:
    """`dpi`, or the most that keeps the image within `max_pixels`; never so little as to vanish."""
    area_in2 = max(width_pt, 1.0) * max(height_pt, 1.0) / POINTS_PER_INCH**2
    return min(float(dpi), math.sqrt(max_pixels / area_in2))

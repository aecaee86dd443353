"""How far the lines of a scanned page slope.

Projection profile (Postl 1986): turned by the right angle, dark pixels fall into sharp rows, or
into sharp columns where the text runs up or down the page. Sharpness is the sum of squared
differences of neighbouring sums. Angles are tried on a small copy, coarse, then fine.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image as pillow
from PIL.Image import Image

MAX_DEGREES: Final = 8.0
# Engines read less sloping lines as well as straight ones.
MIN_DEGREES: Final = 0.4
# Lines must become so many times sharper, or it is no page of text.
MIN_GAIN: Final = 1.15
_SIDE: Final = 900
_COARSE: Final = 0.5
_FINE: Final = 0.1


def find_skew(grey: Image) -> float:
    """Degrees clockwise that straighten the picture; 0.0 when it is straight or shows no lines."""
    ink = _ink(grey)
    coarse = np.arange(-MAX_DEGREES, MAX_DEGREES + _COARSE / 2, _COARSE)
    best = _sharpest(ink, coarse)
    best = _sharpest(ink, np.arange(best - _COARSE, best + _COARSE + _FINE / 2, _FINE))
    if abs(best) < MIN_DEGREES or _sharpness(ink, best) < MIN_GAIN * _sharpness(ink, 0.0):
        return 0.0
    return round(float(best), 1)


def straighten(picture: Image, degrees: float) -> Image:
    """`picture` turned clockwise about its middle; its size stays, corners become white."""
    if not degrees:
        return picture
    white = 255 if picture.mode == "L" else (255, 255, 255)
    return picture.rotate(-degrees, pillow.Resampling.BICUBIC, fillcolor=white)


def _ink(grey: Image) -> Image:
    """A small copy, white on black, without the shades of the paper."""
    small = grey.copy()
    small.thumbnail((_SIDE, _SIDE), pillow.Resampling.BOX)
    levels = np.asarray(small, dtype=np.float32)
    paper = float(np.percentile(levels, 90))
    return pillow.fromarray(np.clip(paper - levels - 32, 0, 255).astype(np.uint8), "L")


def _sharpest(ink: Image, angles: NDArray[np.float64]) -> float:
    return float(max(angles, key=lambda angle: _sharpness(ink, float(angle))))


def _sharpness(ink: Image, degrees: float) -> float:
    turned = ink.rotate(-degrees, pillow.Resampling.BILINEAR)
    levels = np.asarray(turned, dtype=np.float32)
    return max(_steps(levels.sum(axis=0)), _steps(levels.sum(axis=1)))


def _steps(sums: NDArray[np.float32]) -> float:
    return float(np.square(np.diff(sums)).sum())

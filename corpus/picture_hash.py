"""A picture -> a perceptual hash: equal or close for a picture that was scaled or compressed anew.

The difference hash (dHash) over 16 x 16 cells: one bit says whether a cell is darker than the one
on its right. A step of some grey levels is needed, so that noise on white paper flips no bit.
Cells are coarse: curves that differ finely have the same hash, so equal hashes are a link, not
proof.
"""

from __future__ import annotations

import io
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

CELLS: Final = 16
BITS: Final = CELLS * CELLS
MIN_STEP: Final = 4  # grey levels of 255
# A picture with less contrast between its cells has no hash: all such would be equal.
MIN_CONTRAST: Final = 8
STRIP_ROWS: Final = 256


def perceptual_hash(data: bytes) -> str:
    """64 hex digits, or "" when the picture is flat or cannot be decoded by Pillow."""
    try:
        cells = _cells(data, CELLS + 1, CELLS)
    except (OSError, ValueError, Image.DecompressionBombError):
        return ""
    if int(cells.max()) - int(cells.min()) < MIN_CONTRAST:
        return ""
    darker = cells[:, 1:] - cells[:, :-1] > MIN_STEP
    return np.packbits(darker).tobytes().hex()


def is_flat(data: bytes) -> bool:
    """Whether a picture shows one colour only."""
    with Image.open(io.BytesIO(data)) as image:
        return all(low == high for low, high in _bands(image))


def hash_distance(first: NDArray[np.uint8], others: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Bits that differ between one hash, shape (32,), and each of others, shape (n, 32)."""
    counts: NDArray[np.int64] = np.bitwise_count(first ^ others).sum(axis=-1, dtype=np.int64)
    return counts


def _cells(data: bytes, width: int, height: int) -> NDArray[np.int16]:
    """Grey levels on white, shape (height, width)."""
    with Image.open(io.BytesIO(data)) as image:
        image.draft("L", (4 * width, 4 * height))  # JPEG decodes small ones faster
        small = _grey(image).resize((width, height), Image.Resampling.BOX)
    return np.asarray(small, dtype=np.int16)


def _grey(image: Image.Image) -> Image.Image:
    """In grey on white, converted strip by strip: copies of 20 megapixels take 300 MB."""
    has_alpha = image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info
    if not has_alpha and image.mode == "L":
        return image
    width, height = image.size
    grey = Image.new("L", image.size)
    for top in range(0, height, STRIP_ROWS):
        strip = image.crop((0, top, width, min(top + STRIP_ROWS, height)))
        if has_alpha:
            white = Image.new("RGBA", strip.size, "white")
            white.alpha_composite(strip.convert("RGBA"))
            strip = white
        grey.paste(strip.convert("L"), (0, top))
    return grey


def _bands(image: Image.Image) -> list[tuple[int, int]]:
    extrema = (image if image.mode == "RGB" else image.convert("RGB")).getextrema()
    return [(int(low), int(high)) for low, high in extrema]  # type: ignore[misc]

"""Hashes of tall pictures, which are read in strips, against Pillow's conversion of the whole."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from corpus.picture_hash import CELLS, MIN_STEP, STRIP_ROWS, perceptual_hash


@pytest.mark.parametrize("mode", ["L", "LA", "RGB", "RGBA", "P", "1"])
def test_strips_give_the_hash_of_the_whole(mode: str) -> None:
    picture = _drawing(width=300, height=2 * STRIP_ROWS + 77).convert(mode)
    assert perceptual_hash(_png(picture)) == _hash_of_whole(picture)


def test_palette_with_a_transparent_colour() -> None:
    picture = _drawing(width=100, height=STRIP_ROWS + 1).convert("RGB").quantize(32)
    data = io.BytesIO()
    picture.save(data, "PNG", transparency=0)
    with Image.open(io.BytesIO(data.getvalue())) as stored:
        assert perceptual_hash(data.getvalue()) == _hash_of_whole(stored)


def _drawing(width: int, height: int) -> Image.Image:
    rows, columns = np.mgrid[0:height, 0:width]
    waves = [np.sin(rows / (19 + 7 * n)) * np.cos(columns / (11 + 5 * n)) for n in range(4)]
    return Image.fromarray((127 + 127 * np.stack(waves, axis=-1)).astype(np.uint8), "RGBA")


def _png(picture: Image.Image) -> bytes:
    data = io.BytesIO()
    picture.save(data, "PNG")
    return data.getvalue()


def _hash_of_whole(picture: Image.Image) -> str:
    white = Image.new("RGBA", picture.size, "white")
    white.alpha_composite(picture.convert("RGBA"))
    grey = white.convert("L").resize((CELLS + 1, CELLS), Image.Resampling.BOX)
    steps = np.diff(np.asarray(grey, dtype=int), axis=1)
    return "".join(f"{byte:02x}" for byte in np.packbits(steps > MIN_STEP))

"""The page images that we write ourselves are what other readers of PNG see."""

from __future__ import annotations

import io

import cv2
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from corpus.parsers.page_png import encode_page


@given(st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 2**32 - 1))
def test_two_other_decoders_see_the_same_pixels(
    width: int, height: int, grey: bool, seed: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    if grey:
        pixels[..., 1] = pixels[..., 2] = pixels[..., 0]
    data = encode_page(pixels.tobytes(), width, height)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        assert image.mode == ("L" if grey else "RGB")
        assert np.array_equal(np.asarray(image.convert("RGB")), pixels)
    seen = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
    assert np.array_equal(seen[..., ::-1], pixels)

"""Embedded pictures: encoded bytes -> `ParsedImage`, or the reason why not.

PNG and JPEG stay as they are; other raster kinds become PNG. EMF, WMF and SVG are drawings that
need a renderer and are refused with `unsupported_image`.
"""

from __future__ import annotations

import io
from typing import Final

from corpus.parsed import ParsedImage
from workspace.errors import DsmError

_DRAWINGS: Final = {
    b"\x01\x00\x00\x00": "EMF",
    b"\xd7\xcd\xc6\x9a": "WMF",
    b"\x01\x00\x09\x00": "WMF",
    b"<svg": "SVG",
    b"<?xm": "SVG",
    b"\x1f\x8b": "compressed EMF or WMF",
}


class PictureError(DsmError):
    """`reason` is a code: unsupported_image, corrupt_image or pixel_cap."""

    def __init__(self, reason: str, detail: str):
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


def load(data: bytes, *, max_pixels: int, caption: str = "") -> ParsedImage:
    """Check that the picture decodes within `max_pixels` and keep or convert its bytes.

    Raises `PictureError`.
    """
    from PIL import Image, UnidentifiedImageError

    for magic, kind in _DRAWINGS.items():
        if data.startswith(magic):
            raise PictureError("unsupported_image", f"{kind} drawing of {len(data)} bytes")
    try:
        with Image.open(io.BytesIO(data)) as picture:
            width, height = picture.size
            if width * height > max_pixels:
                raise PictureError("pixel_cap", f"{width} x {height} pixels, at most {max_pixels}")
            picture.load()
            if picture.format not in ("PNG", "JPEG"):
                data = _as_png(picture)
    except UnidentifiedImageError as error:
        raise PictureError("unsupported_image", "unknown picture format") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise PictureError("corrupt_image", str(error) or type(error).__name__) from error
    return ParsedImage(data, width, height, caption)


def _as_png(picture: object) -> bytes:
    from PIL import Image

    assert isinstance(picture, Image.Image)
    has_alpha = "A" in picture.mode or "transparency" in picture.info
    encoded = io.BytesIO()
    picture.convert("RGBA" if has_alpha else "RGB").save(encoded, "PNG")
    return encoded.getvalue()

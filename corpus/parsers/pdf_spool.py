"""Pages of one PDF on disk, between the processes that read them and the one that joins them.

    spool/outline.json  p00001.json  p00001.png  images/<sha256>

A page counts as done when its JSON can be read and its PNG has the size that the JSON states, so
a process killed at any moment leaves either a page that is done or one that is read again.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from corpus.parsers.pdf_raw import RawOutline, RawPage


class PdfSpool:
    """Reads and writes one document's spool folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._images = folder / "images"
        self._images.mkdir(parents=True, exist_ok=True)

    def put_image(self, data: bytes) -> str:
        """Keep a picture under its content hash; returns the name."""
        name = hashlib.sha256(data).hexdigest()
        path = self._images / name
        if not path.exists() or path.stat().st_size != len(data):
            _replace(path, data)
        return name

    def get_image(self, name: str) -> bytes:
        return (self._images / name).read_bytes()

    def put_page_png(self, page: int, data: bytes) -> None:
        _replace(self._page_path(page, "png"), data)

    def get_page_png(self, page: int) -> bytes | None:
        path = self._page_path(page, "png")
        return path.read_bytes() if path.exists() else None

    def put_page(self, page: RawPage) -> None:
        _replace(self._page_path(page.page, "json"), _encode(page))

    def get_page(self, page: int) -> RawPage | None:
        """The page if it is done, else None."""
        try:
            value = json.loads(self._page_path(page, "json").read_bytes())
            raw = RawPage.from_json(value)
            size = self._page_path(page, "png").stat().st_size if raw.png_bytes else 0
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return raw if size == raw.png_bytes else None

    def put_outline(self, outline: RawOutline) -> None:
        _replace(self.folder / "outline.json", _encode(outline))

    def get_outline(self) -> RawOutline:
        return RawOutline.from_json(json.loads((self.folder / "outline.json").read_bytes()))

    def missing(self, n_pages: int) -> list[int]:
        """Pages that are not done."""
        return [page for page in range(1, n_pages + 1) if self.get_page(page) is None]

    def _page_path(self, page: int, suffix: str) -> Path:
        return self.folder / f"p{page:05d}.{suffix}"


def _encode(value: RawPage | RawOutline) -> bytes:
    return json.dumps(value, default=vars, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _replace(path: Path, data: bytes) -> None:
    """Rename into place; not flushed, since a page lost to a power cut is only read again."""
    temporary = path.with_name(f".tmp-{os.getpid()}-{path.name}")
    temporary.write_bytes(data)
    temporary.replace(path)

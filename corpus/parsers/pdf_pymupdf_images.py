"""Pictures of a PDF page through PyMuPDF: embedded rasters as stored, captioned line art rendered.

PNG and JPEG streams are kept byte for byte; everything else (JPEG 2000, CMYK, masks, bilevel)
becomes PNG. Left out, and counted or flagged: pictures under 16 pixels, pictures over the pixel
cap, and the scan that covers a whole page, which the page image already shows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from corpus.parsed import Box, ParseOptions
from corpus.parsers.boxes import (
    area,
    enclose,
    horizontal_overlap,
    overlap,
    share_inside,
    vertical_gap,
)
from corpus.parsers.captions import caption_kind
from corpus.parsers.page_size import fit_dpi
from corpus.parsers.pdf_pymupdf_tables import to_box
from corpus.parsers.pdf_raw import PageFiles, RawBlock, RawImage

MIN_PIXELS: Final = 16
LARGE_PIXELS: Final = 4_000_000
WHOLE_PAGE: Final = 0.85
# A figure is at least this wide and high, and its caption at most this far away.
MIN_FIGURE_PT: Final = 40.0
CAPTION_GAP_PT: Final = 50.0
MAX_LABEL_CHARS: Final = 60
LABEL_GAP_PT: Final = 10.0


class Stored(NamedTuple):
    """An encoded picture in the spool; `file` is "" when it was left out."""

    file: str
    width_px: int
    height_px: int
    flag: str = ""


@dataclass
class FoundImages:
    images: list[RawImage] = field(default_factory=list)
    n_tiny: int = 0
    flags: list[str] = field(default_factory=list)

    def flag(self, name: str) -> None:
        if name not in self.flags:
            self.flags.append(name)


class _Placed(NamedTuple):
    """A picture drawn on the page; `xref` is 0 when it is not an object of its own."""

    xref: int
    box: Box
    width_px: int
    height_px: int

    @property
    def tiny(self) -> bool:
        return min(self.width_px, self.height_px) < MIN_PIXELS


class ImageExtractor:
    """Pictures of one document; a picture used on many pages is decoded once."""

    def __init__(self, pymupdf: Any, document: Any, options: ParseOptions) -> None:
        self._pymupdf = pymupdf
        self._document = document
        self._options = options
        self._stored: dict[int, Stored] = {}
        self._masks: dict[int, int] = {}  # of each picture its soft mask's xref, 0 for none

    def read(
        self, page: Any, blocks: Sequence[RawBlock], drawings: Sequence[Any], files: PageFiles
    ) -> FoundImages:
        found = FoundImages()
        if not self._options.extract_images:
            return found
        shown = to_box(page.rect)
        for placed in self._placed(page):
            box = _clip(placed.box, shown)
            if area(box) <= 0:
                continue
            if placed.tiny:
                found.n_tiny += 1
            elif area(box) >= WHOLE_PAGE * area(shown):
                found.flag("scanned")
            elif placed.xref:
                self._add(found, placed, box, files)
            elif image := self._render(page, box, files, "raster"):
                found.images.append(image)
        self._add_line_art(found, page, blocks, drawings, files)
        return found

    def _placed(self, page: Any) -> list[_Placed]:
        """Each picture drawn on the page. One inside the content stream itself has no xref.

        A picture drawn is matched to a stored one by its size in pixels; only where two have the
        same size are all of them decoded and compared (1 ms against up to 200 ms a page).
        """
        by_size: dict[tuple[int, int], set[int]] = {}
        for item in page.get_images(full=True):
            by_size.setdefault((int(item[2]), int(item[3])), set()).add(int(item[0]))
            self._masks[int(item[0])] = int(item[1])
        drawn = page.get_image_info()
        if any(len(by_size.get((item["width"], item["height"]), ())) > 1 for item in drawn):
            drawn = page.get_image_info(xrefs=True)
        placed = []
        for item in drawn:
            width, height = int(item["width"]), int(item["height"])
            stored = by_size.get((width, height), set())
            xref = int(item["xref"]) if "xref" in item else min(stored, default=0)
            box = to_box(self._pymupdf.Rect(item["bbox"]) * page.rotation_matrix)
            placed.append(_Placed(xref, box, width, height))
        return placed

    def _add(self, found: FoundImages, placed: _Placed, box: Box, files: PageFiles) -> None:
        if placed.xref not in self._stored:
            self._stored[placed.xref] = self._store(placed, files)
        stored = self._stored[placed.xref]
        if stored.flag:
            found.flag(stored.flag)
        else:
            found.images.append(RawImage(box, stored.width_px, stored.height_px, stored.file))

    def _store(self, placed: _Placed, files: PageFiles) -> Stored:
        width, height = placed.width_px, placed.height_px
        if width * height > self._options.max_page_pixels:
            return Stored("", width, height, "image_too_large")
        try:
            data = self._encoded(placed.xref)
        except MemoryError:
            raise
        except Exception:  # MuPDF raises many kinds on a damaged picture; the page is still good
            return Stored("", 0, 0, "image_error")
        return Stored(files.put_image(data), width, height)

    def _encoded(self, xref: int) -> bytes:
        mask = self._masks[xref]
        if not mask:
            item = self._document.extract_image(xref)
            if item["ext"] in ("png", "jpeg") and "CMYK" not in str(item["cs-name"]):
                return bytes(item["image"])
        return self._to_png(xref, mask)

    def _to_png(self, xref: int, mask_xref: int) -> bytes:
        pixmap = self._pymupdf.Pixmap(self._document, xref)
        if pixmap.colorspace is None:  # a stencil: only a mask
            return bytes(pixmap.tobytes("png"))
        if pixmap.colorspace.n > 3 or pixmap.colorspace.name not in ("DeviceRGB", "DeviceGray"):
            pixmap = self._pymupdf.Pixmap(self._pymupdf.csRGB, pixmap)
        if pixmap.width * pixmap.height > LARGE_PIXELS:
            # MuPDF keeps the picture as it was decoded, too: three copies before the mask's two.
            self._pymupdf.TOOLS.store_shrink(100)
        if mask_xref and not pixmap.alpha:
            mask = self._pymupdf.Pixmap(self._document, mask_xref)
            if (mask.width, mask.height) == (pixmap.width, pixmap.height):
                pixmap = self._pymupdf.Pixmap(pixmap, mask)
            del mask
        return bytes(pixmap.tobytes("png"))

    def _add_line_art(
        self,
        found: FoundImages,
        page: Any,
        blocks: Sequence[RawBlock],
        drawings: Sequence[Any],
        files: PageFiles,
    ) -> None:
        """Line art next to a figure caption that no raster picture answers."""
        captions = [block.box for block in blocks if caption_kind(block.lines[0].text) == "figure"]
        rasters = [image.box for image in found.images]
        open_captions = [box for box in captions if not any(_adjoins(box, r) for r in rasters)]
        if not open_captions or len(drawings) < 4:
            return
        matrix = page.rotation_matrix
        boxes = [to_box(self._pymupdf.Rect(item["rect"]) * matrix) for item in drawings]
        regions = merge_close([box for box in boxes if _is_visible(box, to_box(page.rect))])
        for caption in open_captions:
            trimmed = {box: _without_caption(box, caption) for box in regions}
            near = [box for box, part in trimmed.items() if _is_figure(part)]
            near = [box for box in near if _adjoins(caption, trimmed[box])]
            if not near:
                continue
            best = min(near, key=lambda box: (vertical_gap(trimmed[box], caption), -area(box)))
            regions.remove(best)
            best = trimmed[best]
            image = self._render(page, _with_labels(best, blocks, caption), files, "vector")
            if image:
                found.images.append(image)

    def _render(self, page: Any, box: Box, files: PageFiles, kind: str) -> RawImage | None:
        width, height = box.x1 - box.x0, box.y1 - box.y0
        dpi = fit_dpi(width, height, 1.5 * self._options.page_dpi, self._options.max_page_pixels)
        scale = dpi / 72
        pixmap = page.get_pixmap(
            matrix=self._pymupdf.Matrix(scale, scale), clip=self._pymupdf.Rect(box), alpha=False
        )
        if min(pixmap.width, pixmap.height) < MIN_PIXELS:
            return None
        name = files.put_image(pixmap.tobytes("png"))
        return RawImage(box, pixmap.width, pixmap.height, name, kind)


def merge_close(boxes: Sequence[Box], gap_pt: float = 12.0) -> list[Box]:
    """Join boxes that touch or nearly touch, until none do."""
    merged: list[Box] = []
    for box in sorted(boxes):
        while True:
            close = [other for other in merged if _near(box, other, gap_pt)]
            if not close:
                break
            merged = [other for other in merged if other not in close]
            box = enclose([box, *close])
        merged.append(box)
    return merged


def _near(first: Box, second: Box, gap: float) -> bool:
    return (
        first.x0 - gap <= second.x1
        and second.x0 - gap <= first.x1
        and first.y0 - gap <= second.y1
        and second.y0 - gap <= first.y1
    )


def _without_caption(box: Box, caption: Box) -> Box:
    """The part above (or below) a caption that stands inside the figure's frame."""
    if share_inside(caption, box) < 0.9:
        return box
    above, below = caption.y0 - box.y0, box.y1 - caption.y1
    if above >= below:
        return box._replace(y1=caption.y0 - 1)
    return box._replace(y0=caption.y1 + 1)


def _with_labels(figure: Box, blocks: Sequence[RawBlock], caption: Box) -> Box:
    """The figure grown by the words set around it: axis names, legends."""
    grown = figure
    for block in blocks:
        words = sum(len(line.text) for line in block.lines)
        inside = min(block.box.x1, figure.x1) - max(block.box.x0, figure.x0)
        if (
            block.box != caption
            and words <= MAX_LABEL_CHARS
            and vertical_gap(block.box, figure) <= LABEL_GAP_PT
            and inside >= 0.8 * (block.box.x1 - block.box.x0)
            and caption_kind(block.lines[0].text) != "figure"
        ):
            grown = enclose([grown, block.box])
    return grown


def _is_visible(box: Box, shown: Box) -> bool:
    """On the page, and neither its background nor a rule across it."""
    inside = share_inside(box, shown) > 0.5 or overlap(box, shown) > 0
    across = box.x1 - box.x0 > 0.6 * (shown.x1 - shown.x0) and box.y1 - box.y0 < 3
    return inside and not across and area(box) < 0.9 * area(shown)


def _is_figure(box: Box) -> bool:
    return box.x1 - box.x0 >= MIN_FIGURE_PT and box.y1 - box.y0 >= MIN_FIGURE_PT


def _adjoins(caption: Box, box: Box) -> bool:
    return (
        horizontal_overlap(caption, box) > 0.3
        and vertical_gap(caption, box) <= CAPTION_GAP_PT
        and share_inside(caption, box) < 0.9
    )


def _clip(box: Box, shown: Box) -> Box:
    return Box(
        max(box.x0, shown.x0), max(box.y0, shown.y0), min(box.x1, shown.x1), min(box.y1, shown.y1)
    )

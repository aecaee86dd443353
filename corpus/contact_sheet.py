"""A PNG of page images, small and side by side: does the corpus look as it should?

In: the published `pages` and `documents` tables. Out: up to SHEET_PAGES tiles: first pages of
documents, and pages spread evenly over the rest. Only the row groups of those pages are read.
"""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pyarrow.parquet as pq
from PIL import Image, ImageDraw, ImageFont

from workspace.manifest import Manifest
from workspace.shards import iterate_files, manifest_files

SHEET_PAGES: Final = 24
COLUMNS: Final = 8
FIRST_PAGES: Final = 12
TILE_PX: Final = 190
CAPTION_PX: Final = 18
_GREY: Final = "#e9e9ec"


class _Place(NamedTuple):
    """A page with an image, and where its row is."""

    doc_id: str
    page: int
    file: Path
    row_group: int
    row: int


def contact_sheet(folder: Path, manifest: Manifest) -> bytes | None:
    """PNG, or None when no page has an image."""
    documents = iterate_files(manifest_files(folder, manifest, "documents"), ["doc_id", "name"])
    names = {row["doc_id"]: row["name"] for row in documents}
    places = _choose(list(_places(folder, manifest)))
    if not places:
        return None
    images = _read_images(places)
    columns = min(COLUMNS, len(places))
    height = -(-len(places) // columns) * (TILE_PX + CAPTION_PX)
    sheet = Image.new("RGB", (columns * TILE_PX, height), _GREY)
    draw = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(size=11)
    for index, place in enumerate(places):
        x, y = index % columns * TILE_PX, index // columns * (TILE_PX + CAPTION_PX)
        with Image.open(io.BytesIO(images[place])) as page:
            page.thumbnail((TILE_PX - 14, TILE_PX - 8))
            tile = page.convert("RGB")
        sheet.paste(tile, (x + (TILE_PX - tile.width) // 2, y + TILE_PX - tile.height))
        caption = f"{names.get(place.doc_id, '')[:24]} p{place.page}"
        draw.text((x + 8, y + TILE_PX + 3), caption, fill="#333333", font=font)
    buffer = io.BytesIO()
    sheet.save(buffer, "PNG")
    return buffer.getvalue()


def _places(folder: Path, manifest: Manifest) -> Iterator[_Place]:
    """Every page with an image, without reading the images."""
    for path in manifest_files(folder, manifest, "pages"):
        with pq.ParquetFile(path) as shard:
            for group in range(shard.num_row_groups):
                rows = shard.read_row_group(group, ["doc_id", "page", "image_dpi"]).to_pylist()
                for index, row in enumerate(rows):
                    if row["image_dpi"]:
                        yield _Place(row["doc_id"], row["page"], path, group, index)


def _choose(places: list[_Place]) -> list[_Place]:
    first = [place for place in places if place.page == 1]
    chosen = set(_spread(first, FIRST_PAGES))
    rest = [place for place in places if place not in chosen]
    chosen.update(_spread(rest, SHEET_PAGES - len(chosen)))
    return sorted(chosen)


def _spread(places: list[_Place], count: int) -> list[_Place]:
    if len(places) <= count:
        return places
    return [places[index * len(places) // count] for index in range(count)]


def _read_images(places: list[_Place]) -> dict[_Place, bytes]:
    groups: dict[tuple[Path, int], list[_Place]] = defaultdict(list)
    for place in places:
        groups[place.file, place.row_group].append(place)
    images: dict[_Place, bytes] = {}
    for (path, group), wanted in groups.items():
        with pq.ParquetFile(path) as shard:
            column = shard.read_row_group(group, ["image"]).column("image")
            images.update({place: column[place.row].as_py()["bytes"] for place in wanted})
    return images

"""Documents for the ingest benchmarks: cuts of real ones, and many small ones made from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import shared_data

_WORDS = """
clock reset register interrupt controller voltage supply current timer counter bus address data
enable width field cell power grid transformer order invoice shipment lot wafer mask is are has
the a of and to in for with
""".split()  # noqa: SIM905  one line a word else


def corpus_files() -> list[Path]:
    """The real documents, sorted."""
    folder = shared_data() / "corpus"
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".tsv")


def cut_corpus(folder: Path, *, pages: int, largest: int = 400_000) -> list[Path]:
    """From each PDF `pages` pages of its middle, and the other files up to `largest` bytes."""
    import pymupdf

    folder.mkdir(parents=True, exist_ok=True)
    made = []
    for source in corpus_files():
        target = folder / source.name
        if source.suffix == ".pdf":
            with pymupdf.open(source) as document:
                first = max(0, (len(document) - pages) // 2)
                document.select(range(first, min(first + pages, len(document))))
                document.save(target, garbage=3, deflate=True)
        elif source.stat().st_size <= largest:
            target.write_bytes(source.read_bytes())
        else:
            continue
        made.append(target)
    return made


def write_small_files(folder: Path, count: int, *, seed: int = 1) -> None:
    """`count` files of one to two kB in six formats, no two alike, a thousand in a folder."""
    draw = random.Random(seed)
    for number, (suffix, text) in zip(range(count), _small_texts(draw), strict=False):
        place = folder / f"{number // 1000:03d}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"d{number:06d}.{suffix}").write_text(text, encoding="utf-8")


def _small_texts(draw: random.Random) -> Iterator[tuple[str, str]]:
    number = 0
    while True:
        paragraphs = [" ".join(_sentence(draw) for _ in range(4)) for _ in range(3)]
        title = f"Note {number}"
        yield "txt", "\n\n".join([title, *paragraphs]) + "\n"
        yield "md", f"# {title}\n\n" + "\n\n## Part\n\n".join(paragraphs) + "\n"
        body = "".join(f"<p>{paragraph}</p>" for paragraph in paragraphs)
        yield "html", f"<html><body><h1>{title}</h1>{body}</body></html>\n"
        rows = "".join(f"p{row},{draw.random():.3f},mV\n" for row in range(12))
        yield "csv", "name,value,unit\n" + rows
        yield (
            "v",
            f"// counter {number}\nmodule c{number} (input clk, input rst, output reg [7:0] q);\n"
            f"always @(posedge clk) if (rst) q <= 0; else q <= q + {number % 7 + 1};\nendmodule\n",
        )
        head = f"From: a@b.example\nTo: c@d.example\nSubject: lot {number}\n"
        date = "Date: Mon, 1 Jan 2024 10:00:00 +0000\n\n"
        yield "eml", head + date + "\n\n".join(paragraphs) + "\n"
        number += 1


def _sentence(draw: random.Random) -> str:
    words = [draw.choice(_WORDS) for _ in range(draw.randint(6, 14))]
    return " ".join(words).capitalize() + "."

"""What later runs cost, what a kill loses, and how well near duplicates are told from variants.

    python -m benchmarks.ingest.incremental [--short]

Runs: cuts of the real documents are ingested; then again unchanged, with one file changed, with
another number of workers, and once killed in the middle and started again. Tables must be equal,
byte for byte.

Duplicates: pairs labelled by hand in the real documents (a DOCX and its PDF; two cell books that
differ in numbers), and edits of each document's text made here: words changed or another layout
(near), numbers changed, many or one (variant), half of it (neither). The peer is plain MinHash LSH
(datasketch, 128 permutations, 5-word shingles, the same threshold), which has no word for a
variant. `--short`: two pages of each PDF, every third document's edits.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from itertools import combinations
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from benchmarks.ingest.samples import corpus_files, cut_corpus
from benchmarks.measure import Report, cpu_seconds, parser
from corpus import ingest
from corpus.duplicate_documents import Sketch, group_documents
from corpus.duplicate_images import Picture, group_pictures
from corpus.fingerprints import PERMUTATIONS, describe, read_text
from corpus.ingest_config import IngestConfig
from corpus.parsed import ParseOptions, Unreadable
from corpus.parsers.registry import WHOLE, find_parser
from corpus.sniff import sniff
from corpus.survey import survey, unfinished
from workspace import stage
from workspace.manifest import Manifest, read_manifest

THRESHOLD: Final = 0.75
CORES: Final = ("sg13g2_stdcell_typ", "sg13g2_stdcell_fast")
TWINS: Final = (
    ("TechNote_CableModelling.pdf", "Technote_CableModelling.docx"),
    ("i2c_specs.pdf", "I2C_specs.doc"),  # read where LibreOffice is installed
)
# A run in another process, so that it can be killed.
_RUN: Final = (
    "import sys; from pathlib import Path; from benchmarks.ingest.incremental import run; "
    "run(Path(sys.argv[1]), Path(sys.argv[2]), 2)"
)

Pair = frozenset[str]


def main() -> int:
    arguments = parser(__doc__ or "").parse_args()
    if find_spec("datasketch") is None:  # said before the half hour, not after it
        raise SystemExit("datasketch is missing: .venv/bin/pip install -r benchmarks/peers.txt")
    report = Report("ingest", "incremental", short=arguments.short)
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        files = cut_corpus(place / "docs", pages=2 if arguments.short else 8)
        add_runs(report, place, files)
        add_kill(report, place)
    add_duplicates(report, every=3 if arguments.short else 1)
    add_scale(report, 5_000 if arguments.short else 50_000)
    return report.finish()


def run(folder: Path, workspace: Path, workers: int) -> Manifest:
    """Ingest `folder`; CPU seconds of its children are counted when it returns."""
    config = IngestConfig(sources=[str(folder)], workspace=workspace, workers=workers, page_dpi=72)
    return stage.run(config, ingest.plan, ingest.process, ingest.publish).manifest


def timed(folder: Path, workspace: Path, workers: int) -> tuple[Manifest, float]:
    with cpu_seconds() as spent:
        manifest = run(folder, workspace, workers)
    return manifest, spent[0]


def digests(manifest: Manifest) -> dict[str, str]:
    return {f.path: f.sha256 for f in manifest.files if f.path.endswith(".parquet")}


def add_runs(report: Report, place: Path, files: list[Path]) -> None:
    docs, work = place / "docs", place / "w"
    first, cost = timed(docs, work, 2)
    report.notes.append(f"{len(files)} files, {first.counts_in['pages']} pages")
    report.add("first run, CPU", cost, "s")
    _, again = timed(docs, work, 2)
    report.add("unchanged second run, CPU over the first", again / cost, target="< 0.02")
    other = run(docs, place / "one-worker", 1)
    report.add(
        "tables that differ with one worker instead of two",
        len(set(digests(first).items()) ^ set(digests(other).items())),
        target="= 0",
    )
    changed = next(path for path in files if path.suffix == ".rst")
    changed.write_text(changed.read_text(encoding="utf-8") + "\nAnother paragraph.\n")
    alone = place / "alone"
    alone.mkdir()
    (alone / changed.name).write_bytes(changed.read_bytes())
    _, own = timed(alone, place / "alone-w", 2)
    second, cost_of_change = timed(docs, work, 2)
    assert second.notes["reused_documents"] == first.counts_in["documents"] - 1
    report.add(f"one of {len(files)} files changed, CPU over the first", cost_of_change / cost)
    report.add("one file changed: CPU beyond that file's own run", cost_of_change - own, "s")
    fresh = run(docs, place / "fresh", 2)
    report.add(
        "tables that differ from a fresh run after the change",
        len(set(digests(second).items()) ^ set(digests(fresh).items())),
        target="= 0",
    )


def add_kill(report: Report, place: Path) -> None:
    docs, work = place / "docs", place / "killed"
    total = read_manifest(place / "fresh" / "corpus")
    assert total is not None
    wanted = total.counts_in["documents"] // 2
    command = [sys.executable, "-c", _RUN, str(docs), str(work)]
    with subprocess.Popen(command, start_new_session=True) as process:
        while process.poll() is None and len(finished(work)) < wanted:
            time.sleep(0.05)
        os.kill(process.pid, signal.SIGKILL)
    time.sleep(1)  # children die with their parent
    before = finished(work)
    config = IngestConfig(sources=[str(docs)], workspace=work, workers=2, page_dpi=72)
    left = {source.doc_id for source in unfinished(config, survey(config).fresh)}
    report.add("documents done when killed with -9", len(before), target="> 0")
    report.add("done documents that are parsed again", len(before & left), target="= 0")
    second = run(docs, work, 2)
    report.add(
        "tables that differ after the kill",
        len(set(digests(second).items()) ^ set(digests(total).items())),
        target="= 0",
    )


def finished(workspace: Path) -> set[str]:
    """Documents with a unit on disk; one on its way has a hidden name, and is the unit lost."""
    import json

    found: set[str] = set()
    for marker in workspace.glob("corpus/.work/units-*/[!.]*/unit.json"):
        try:
            found.update(json.loads(marker.read_text(encoding="utf-8")))
        except FileNotFoundError:  # a folder on its way to its name
            continue
    return found


def add_duplicates(report: Report, *, every: int) -> None:
    texts = dict(read_documents())
    related: dict[Pair, str] = {}
    for kind, names in (*(("near", pair) for pair in TWINS), ("variant", CORES)):
        pair = frozenset(name for name in texts for part in names if part in name)
        if len(pair) == len(names):
            related[pair] = kind
    origin = {name: Edit(name, "as it is") for name in texts}
    for name in sorted(texts)[::every]:
        for edit, text in edits(name, texts[name]).items():
            texts[f"{name} {edit}"] = text
            origin[f"{name} {edit}"] = Edit(name, edit)
    labels = {
        frozenset(pair): expected(origin[pair[0]], origin[pair[1]], related)
        for pair in combinations(texts, 2)
    }
    scored = {pair for pair, kind in labels.items() if kind != "either"}
    truth = {pair for pair, kind in labels.items() if kind == "near"}
    variants = {pair for pair, kind in labels.items() if kind == "variant"}
    with cpu_seconds() as spent:
        ours = our_pairs(texts)
    report.notes.append(
        f"{len(texts)} texts, {len(truth)} pairs of near duplicates, {len(variants)} of variants"
    )
    report.add("fingerprints and groups, CPU a text", spent[0] / len(texts), "s")
    peers = peer_pairs(texts) & scored
    near = {pair for pair, kind in ours.items() if kind == "near"} & scored
    linked = {pair for pair, kind in ours.items() if kind == "variant"}
    peer = "datasketch MinHash LSH"
    for name, measure in (("precision", precision), ("recall", recall)):
        report.add(
            f"near duplicates, {name}", measure(near, truth), target=">= 0.95",
            peer=peer, peer_value=measure(peers, truth),
        )  # fmt: skip
    report.add("variants found and kept apart", recall(linked, variants), target=">= 0.95")
    report.add(
        "variants taken for duplicates", len(near & variants) / len(variants),
        target="<= 0.02", peer=peer, peer_value=len(peers & variants) / len(variants),
    )  # fmt: skip


def add_scale(report: Report, count: int) -> None:
    """Groups over made-up sketches: nine in ten alone, a form filled in by one in ten."""
    draw = np.random.default_rng(1)
    form = draw.integers(0, 1 << 32, PERMUTATIONS, dtype=np.uint32)
    sketches, places = [], {}
    for number in range(count):
        own = draw.integers(0, 1 << 32, (2, PERMUTATIONS), dtype=np.uint32)
        name = f"{number:06d}"
        words = form if number % 10 == 0 else own[0]
        sketches.append(Sketch(name, 500, f"{words[0]}", name, words, own[1]))
        pairs = draw.integers(0, 1 << 63, (64, 2), dtype=np.uint64)
        places[name] = pairs[np.argsort(pairs[:, 0])]
    with cpu_seconds() as spent:
        members = group_documents(sketches, places, THRESHOLD)
    assert len(members) == count // 10 - 1
    report.add(f"groups of {count:,} documents, CPU", spent[0], "s", target="<= 120")
    hashes = draw.bytes(32 * 6 * count).hex()
    pictures = [
        Picture(f"{n:06d}", hashes[64 * n : 64 * n + 64], 400, 300, 1) for n in range(6 * count)
    ]
    with cpu_seconds() as spent:
        group_pictures(pictures)
    report.add(f"groups of {6 * count:,} pictures, CPU", spent[0], "s", target="<= 600")


def precision(found: set[Pair], truth: set[Pair]) -> float:
    return len(found & truth) / len(found) if found else 1.0


def recall(found: set[Pair], truth: set[Pair]) -> float:
    return len(found & truth) / len(truth)


def read_documents() -> Iterable[tuple[str, str]]:
    """Name and text of each real document that has some: PDFs as stored, others as parsed."""
    import pymupdf

    for path in corpus_files():
        text = ""
        if path.suffix == ".pdf":
            with pymupdf.open(path) as document:
                text = "\n".join(page.get_text() for page in document)
        elif (kind := sniff(path, path.suffix.lower())) in WHOLE:
            try:
                parsed = find_parser(kind)(path, ParseOptions(extract_images=False))
            except Unreadable:
                continue
            text = "\n".join(element.text for element in parsed.elements)
        if len(text.split()) >= 100:
            yield path.name, text


class Edit(NamedTuple):
    """A text: the document that it was made from, and what was done to it."""

    document: str
    edit: str


def edits(name: str, text: str) -> dict[str, str]:
    """A text in another layout, with other words, with other numbers, and half of it."""
    draw = random.Random(name)
    made = {"reflowed": reflow(text), "reworded": reword(text, draw)}
    numbers = list(re.finditer(r"\d+", text))
    if len(numbers) >= 20:
        made["renumbered"] = renumber(text, draw, lambda: draw.random() < 0.4)
        chosen = draw.randrange(len(numbers))
        steps = iter(range(len(numbers)))
        made["one number"] = renumber(text, draw, lambda: next(steps) == chosen)
    made["half"] = text[: len(text) // 2]
    return made


def expected(first: Edit, second: Edit, related: Mapping[Pair, str]) -> str:
    """near, variant, "" for unlike texts, or either, where both answers are right."""
    same = first.document == second.document
    kind = "near" if same else related.get(frozenset((first.document, second.document)), "")
    both = {first.edit, second.edit}
    if not kind:
        return ""
    if "half" in both:
        return "either" if both == {"half"} else ""
    if kind == "variant" or "renumbered" in both:
        return "variant"
    if "one number" in both:
        # Beside other words, or the words that another format lost, one number is a small edit.
        return "variant" if same and "reworded" not in both else "either"
    return "near"


def reflow(text: str) -> str:
    words = text.split()
    return "\n".join(" ".join(words[start : start + 9]) for start in range(0, len(words), 9))


def reword(text: str, draw: random.Random) -> str:
    """One word in two hundred replaced, at least one."""
    words = text.split(" ")
    plain = [index for index, word in enumerate(words) if word.isalpha()]
    for index in draw.sample(plain, max(1, len(plain) // 200)):
        words[index] = draw.choice(("alternate", "revised", "other", "given"))
    return " ".join(words)


def renumber(text: str, draw: random.Random, wanted: Callable[[], bool]) -> str:
    def change(match: re.Match[str]) -> str:
        if not wanted():
            return match[0]
        other = match[0]
        while other == match[0]:
            other = "".join(draw.choice("123456789") for _ in match[0])
        return other

    return re.sub(r"\d+", change, text)


def our_pairs(texts: Mapping[str, str]) -> dict[Pair, str]:
    """Pairs in one near group, and pairs of groups of one family."""
    rows = {name: describe(read_text(text)) for name, text in texts.items()}
    sketches = [_sketch(name, row) for name, row in rows.items()]
    places = {
        name: np.frombuffer(row["places"], np.uint64).reshape(-1, 2) for name, row in rows.items()
    }
    leader = {name: name for name in texts}
    family = {name: name for name in texts}
    for member in group_documents(sketches, places, THRESHOLD):
        chosen = leader if member.likeness.kind == "near" else family
        chosen[member.doc_id] = member.representative
    found: dict[Pair, str] = {}
    for first, second in combinations(texts, 2):
        if leader[first] == leader[second]:
            found[frozenset((first, second))] = "near"
        elif family[leader[first]] == family[leader[second]]:
            found[frozenset((first, second))] = "variant"
    return found


def _sketch(name: str, row: Mapping[str, Any]) -> Sketch:
    return Sketch(
        name,
        row["n_words"],
        row["words_hash"],
        row["text_hash"],
        np.frombuffer(row["signature"], np.uint32),
        np.frombuffer(row["plain_signature"], np.uint32),
    )


def peer_pairs(texts: Mapping[str, str]) -> set[Pair]:
    from datasketch import MinHash, MinHashLSH

    made = {}
    index = MinHashLSH(threshold=THRESHOLD, num_perm=128)
    for name, text in texts.items():
        words = re.findall(r"\w+", text.casefold())
        shingles = {" ".join(words[i : i + 5]).encode() for i in range(max(1, len(words) - 4))}
        made[name] = MinHash(num_perm=128)
        made[name].update_batch(shingles)
        index.insert(name, made[name])
    return {
        frozenset((name, other))
        for name, sketch in made.items()
        for other in index.query(sketch)
        if other != name and sketch.jaccard(made[other]) >= THRESHOLD
    }


if __name__ == "__main__":
    sys.exit(main())

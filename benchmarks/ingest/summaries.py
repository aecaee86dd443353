"""ROUGE of document summaries against what the authors wrote.

Two sets of references. `abstract`: papers and reports that carry one. `introduction`: documents
without an abstract whose introduction or overview says what they are about, a proxy. The reference
is removed from the input, and every method chooses five sentences from the same pool; `summa`
(TextRank, PyPI) reads the same text with its own sentence splitter. F1 with stemming, references
cut at 250 words. Differences come with a paired bootstrap interval over the documents.
"""

from __future__ import annotations

import random
import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from benchmarks.measure import Report, parser, shared_data
from corpus import ingest
from corpus.centrality import position_weight
from corpus.ingest_config import IngestConfig
from corpus.rows import DocumentRows
from corpus.summaries import DOCUMENT_SENTENCES, document_pool, summarise
from corpus.summary_sentences import PROSE, find_abstract, good_sentences
from workspace import stage
from workspace.shards import Row, iterate_rows

ABSTRACT_FILES: Final = (
    "corpus/energy/OpenDSS__OpenDSSSmartInverterModeling-EPRI-000000003002002271.pdf",
    "nasty/bombs_huge/pdfplumber__issue-982-example.pdf",
    "nasty/fonts_text/docling-parse__ligatures_01.pdf",
    "nasty/fonts_text/unstructured__multi-column.pdf",
)
INTRODUCTION_FILES: Final = (
    "corpus/semiconductor/black-parrot__bedrock_protocol_specification.pdf",
    "corpus/semiconductor/pulpino__datasheet.pdf",
    "corpus/semiconductor/ethmac__eth_speci.pdf",
    "corpus/semiconductor/i2c__i2c_specs.pdf",
    "corpus/semiconductor/zipcpu__spec.pdf",
    "corpus/semiconductor/riscv-isa-manual__zk.adoc",
    "corpus/energy/matpower__TN2-OPF-Derivatives.pdf",
    "corpus/energy/matpower__TN5-MP-Element.pdf",
    "corpus/supply-chain/ONE-Record__ONE_Record_API_CSC_adopted.docx",
)
_INTRODUCTION: Final = re.compile(
    r"(?:\d+[.\d]*\s+)?(?:introduction|overview|scope)", re.IGNORECASE
)
_MIN_WORDS: Final = 40
_MAX_WORDS: Final = 250
_ROUNDS: Final = 2000
_ROUGE: Final = ("rouge1", "rouge2", "rougeL")

Pool = list[list[str]]
Method = Callable[[Pool], list[str]]
Reference = Callable[[DocumentRows], list[Row]]


def main() -> int:
    """Both sets, or with `--short` the abstracts alone."""
    args = parser(__doc__ or "").parse_args()
    report = Report("ingest", "summaries", short=args.short)
    sets: dict[str, tuple[Sequence[str], Reference]] = {"abstract": (ABSTRACT_FILES, find_abstract)}
    if not args.short:
        sets["introduction"] = (INTRODUCTION_FILES, _introduction)
    for name, (files, reference) in sets.items():
        _measure(report, name, _read(files), reference)
    return report.finish()


def _read(files: Sequence[str]) -> list[DocumentRows]:
    with tempfile.TemporaryDirectory() as folder:
        config = IngestConfig(
            sources=[str(shared_data() / name) for name in files],
            workspace=Path(folder),
            workers=1,
            table_detection="fast",
            page_dpi=36,
        )
        stage.run(config, ingest.plan, ingest.process, ingest.publish)
        corpus = config.folder
        rows = {row["doc_id"]: row for row in iterate_rows(corpus, "documents")}
        return [
            DocumentRows(doc_id, rows[doc_id], elements=list(group))
            for doc_id, group in groupby(
                iterate_rows(corpus, "elements"), key=lambda row: str(row["doc_id"])
            )
        ]


def _measure(
    report: Report,
    name: str,
    documents: list[DocumentRows],
    find_reference: Reference,
) -> None:
    scores: dict[str, list[list[float]]] = {}
    for document in documents:
        removed = find_reference(document)
        reference = " ".join(" ".join(row["text"] for row in removed).split()[:_MAX_WORDS])
        if len(reference.split()) < _MIN_WORDS:
            report.notes.append(f"{name}: no reference found in {document.document['name']}")
            continue
        texts = _summaries(_without(document, removed))
        for method, text in texts.items():
            scores.setdefault(method, []).append(_score(reference, text))
    ours = scores.pop("ours")
    report.add(f"{name}: documents", len(ours))
    for index, measure in enumerate(_ROUGE):
        for method, theirs in scores.items():
            a, b = [row[index] for row in ours], [row[index] for row in theirs]
            report.add(f"{name}: {measure}", 100 * fmean(a), peer=method, peer_value=100 * fmean(b))
            low, high = _bootstrap([x - y for x, y in zip(a, b, strict=True)])
            report.notes.append(
                f"{name} {measure}, ours - {method}: {100 * (fmean(a) - fmean(b)):+.1f} "
                f"(95 % interval {100 * low:+.1f} to {100 * high:+.1f})"
            )


def _without(document: DocumentRows, removed: list[Row]) -> DocumentRows:
    gone = {row["element_id"] for row in removed}
    left = [row for row in document.elements if row["element_id"] not in gone]
    return replace(document, elements=left)


def _introduction(document: DocumentRows) -> list[Row]:
    titles = (row for row in document.elements if row["category"] == "Title")
    found = next((row for row in titles if _INTRODUCTION.fullmatch(row["text"].strip())), None)
    return [
        row
        for row in document.elements
        if found and row["category"] in PROSE and row["parent_id"] == found["element_id"]
    ]


def _summaries(document: DocumentRows) -> dict[str, str]:
    sections = document_pool(document, good_sentences(document))
    pool = [[pair.text for pair in section] for section in sections]
    ours = next(row["text"] for row in summarise(document) if row["level"] == "document")
    return {"ours": ours, **{name: " ".join(method(pool)) for name, method in METHODS.items()}}


def _lead(pool: Pool) -> list[str]:
    return [text for section in pool for text in section][:DOCUMENT_SENTENCES]


def _textrank(pool: Pool) -> list[str]:
    return _ranked(pool, centroid=False, weighted=False)


def _centroid(pool: Pool) -> list[str]:
    return _ranked(pool, centroid=True, weighted=False)


def _weighted_centroid(pool: Pool) -> list[str]:
    return _ranked(pool, centroid=True, weighted=True)


def _mmr(pool: Pool) -> list[str]:
    return _ranked(pool, centroid=True, weighted=True, relevance=0.7)


def _ranked(pool: Pool, *, centroid: bool, weighted: bool, relevance: float = 1.0) -> list[str]:
    """PageRank or similarity to the centroid over TF-IDF, chosen greedily (MMR below 1)."""
    import networkx as nx
    import numpy as np
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = [text for section in pool for text in section]
    vectors = TfidfVectorizer(stop_words="english", sublinear_tf=True).fit_transform(texts)
    similarity: Any = (vectors @ vectors.T).toarray()
    if centroid:
        scores = np.asarray(vectors @ np.asarray(vectors.mean(axis=0)).ravel())
    else:
        graph = nx.from_numpy_array(similarity - np.eye(len(texts)) * similarity.diagonal())
        scores = np.array(list(nx.pagerank(graph).values()))
    if weighted:
        places = [(i, j) for i, section in enumerate(pool) for j in range(len(section))]
        scores = scores * [position_weight(i, len(pool), j) for i, j in places]
    scores = scores / scores.max()
    chosen: list[int] = []
    while len(chosen) < min(DOCUMENT_SENTENCES, len(texts)):
        left = [index for index in range(len(texts)) if index not in chosen]
        gains = {
            index: relevance * scores[index]
            - (1 - relevance) * max((similarity[index, other] for other in chosen), default=0)
            for index in left
        }
        chosen.append(max(left, key=lambda index: (round(gains[index], 9), -index)))
    return [texts[index] for index in sorted(chosen)]


def _summa(pool: Pool) -> list[str]:
    from summa.summarizer import summarize

    text = " ".join(text for section in pool for text in section)
    budget = sum(len(text.split()) for text in _textrank(pool))
    return [str(summarize(text, words=budget))]


METHODS: Final[dict[str, Method]] = {
    "lead": _lead,
    "textrank": _textrank,
    "centroid": _centroid,
    "centroid x position": _weighted_centroid,
    "mmr": _mmr,
    "summa 1.2": _summa,
}


def _score(reference: str, text: str) -> list[float]:
    from rouge_score import rouge_scorer

    found = rouge_scorer.RougeScorer(list(_ROUGE), use_stemmer=True).score(reference, text)
    return [found[measure].fmeasure for measure in _ROUGE]


def _bootstrap(differences: Sequence[float]) -> tuple[float, float]:
    generator = random.Random(0)
    means = sorted(_resampled(differences, generator))
    return means[int(0.025 * _ROUNDS)], means[int(0.975 * _ROUNDS)]


def _resampled(values: Sequence[float], generator: random.Random) -> Iterator[float]:
    return (fmean(generator.choices(values, k=len(values))) for _ in range(_ROUNDS))


if __name__ == "__main__":
    sys.exit(main())

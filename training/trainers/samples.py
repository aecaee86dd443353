"""Training samples in flat files, which every rank maps into memory.

    <stage>/samples/train/, held-out/   ids.npy (uint32), flags.npy (uint8),
                                        offsets.npy, learned.npy (int64)
                    samples.json        what they were made from, what was left out

Rank 0 writes them once in the life of a stage, whole or not at all: a resumed attempt neither
tokenises again nor holds the text in memory. `cpt` packs documents into sequences of one length,
`sft` has one row a sample.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from training.run_record import SAMPLES_NAME
from training.trainers.packing import LEARNED, START, Piece, pack, row_pieces
from training.trainers.rows import IGNORED, read_view, tokenize_rows, with_evaluation
from training.trainers.spec import TrainSpec
from workspace import publish
from workspace.errors import UserError

TRAIN_NAME = "train"
HELD_OUT_NAME = "held-out"
_ABOUT_NAME = "samples.json"
_BATCH_DOCUMENTS = 256


class Sample(NamedTuple):
    """One sequence; all three of its length. `labels` is -100 where nothing is learned."""

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    positions: NDArray[np.int64]  # from 0 in each piece


@dataclass(frozen=True)
class Samples:
    """All samples of a stage. `rejects`: reason code -> documents or rows left out."""

    ids: NDArray[np.uint32]
    flags: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    learned: NDArray[np.int64]  # learned tokens of each sample
    rejects: dict[str, int]
    made_from: str  # hash of data, tokenizer and settings

    def __len__(self) -> int:
        return len(self.learned)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sample."""
        return np.diff(self.offsets)

    def length(self, number: int) -> int:
        """Tokens of one sample."""
        return int(self.offsets[number + 1] - self.offsets[number])

    def __getitem__(self, number: int) -> Sample:
        part = slice(int(self.offsets[number]), int(self.offsets[number + 1]))
        ids, flags = self.ids[part].astype(np.int64), self.flags[part]
        starts = np.flatnonzero(flags & START)
        positions = np.arange(len(ids)) - np.repeat(starts, np.diff([*starts, len(ids)]))
        return Sample(ids, np.where(flags & LEARNED, ids, IGNORED), positions)


def prepare_samples(spec: TrainSpec, tokenizer: Any) -> Path:
    """Write the samples of a stage unless they are there; returns their folder.

    Raises `UserError` when there is nothing to train on.
    """
    folder = spec.stage_dir / SAMPLES_NAME
    made_from = _fingerprint(spec)
    if _is_written(folder, made_from):
        return folder
    rejects: Counter[str] = Counter()
    train, held = _samples(spec, tokenizer, rejects)
    with publish.atomic_directory(folder) as target:
        if not _write(target / TRAIN_NAME, train):
            raise UserError(
                f"nothing of {', '.join(map(str, spec.data)) or 'the view'} can be trained on "
                f"(left out: {dict(rejects)}); see {spec.stage} in the settings for its limits"
            )
        _write(target / HELD_OUT_NAME, held)
        about = {"rejects": dict(sorted(rejects.items())), "made_from": made_from}
        (target / _ABOUT_NAME).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    return folder


def read_samples(folder: Path, name: str = TRAIN_NAME) -> Samples:
    """Map files of `<stage>/samples` into memory."""
    ids, flags, offsets, learned = (
        np.load(folder / name / f"{array}.npy", mmap_mode="r")
        for array in ("ids", "flags", "offsets", "learned")
    )
    about = json.loads((folder / _ABOUT_NAME).read_text(encoding="utf-8"))
    return Samples(ids, flags, offsets, learned, about["rejects"], about["made_from"])


def _samples(
    spec: TrainSpec, tokenizer: Any, rejects: Counter[str]
) -> tuple[Iterator[list[Piece]], Iterator[list[Piece]]]:
    """Those to train on and those to evaluate on."""
    if spec.stage == "cpt":
        documents, held = with_evaluation(
            spec,
            _documents(_texts(spec.data), tokenizer, rejects),
            lambda rows: _documents([[row["text"] for row in rows]], tokenizer, Counter()),
        )
        length = spec.cpt.sequence_length
        return pack(documents, length), pack(held, length)
    tokens = tokenize_rows(
        tokenizer, read_view(spec.data, ("prompt", "completion")), spec.sft.max_length
    )
    rejects.update(tokens.rejects)
    rows, unseen = with_evaluation(
        spec,
        tokens.rows,
        lambda rows: tokenize_rows(tokenizer, rows, spec.sft.max_length).rows,
    )
    return row_pieces(rows), row_pieces(unseen)


def _write(folder: Path, samples: Iterable[Sequence[Piece]]) -> int:
    """Write samples in this order; returns how many."""
    ids, flags = array("I"), bytearray()
    offsets, learned = array("q", [0]), array("q")
    for pieces in samples:
        before = len(ids)
        for piece in pieces:
            ids.extend(piece.ids)
            flags.extend(piece.flags)
        learned.append(sum(flag & LEARNED for flag in flags[before:]))
        offsets.append(len(ids))
    folder.mkdir()
    np.save(folder / "ids.npy", np.frombuffer(ids, np.uint32))
    np.save(folder / "flags.npy", np.frombuffer(flags, np.uint8))
    np.save(folder / "offsets.npy", np.frombuffer(offsets, np.int64))
    np.save(folder / "learned.npy", np.frombuffer(learned, np.int64))
    return len(learned)


def _is_written(folder: Path, made_from: str) -> bool:
    try:
        about = json.loads((folder / _ABOUT_NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return False
    return bool(about["made_from"] == made_from)


def _fingerprint(spec: TrainSpec) -> str:
    """What samples depend on: data, the tokenizer's files, a length, what is held out."""
    length = spec.cpt.sequence_length if spec.stage == "cpt" else spec.sft.max_length
    held_out = (spec.seed, spec.evaluation.output_settings()) if spec.evaluates else ()
    seen = hashlib.sha256(repr((spec.stage, length, held_out)).encode())
    tokenizer = (*spec.parent.glob("*token*"), *spec.parent.glob("*.jinja"))
    for path in (*spec.data, *spec.eval_data, *sorted(tokenizer)):
        seen.update(path.name.encode())
        with path.open("rb") as stream:
            seen.update(hashlib.file_digest(stream, "sha256").digest())
    return seen.hexdigest()[:32]


def _documents(
    batches: Iterable[list[str]], tokenizer: Any, rejects: Counter[str]
) -> list[Sequence[int]]:
    """Texts as tokens, each with its end token."""
    documents: list[Sequence[int]] = []
    for texts in batches:
        kept = [text for text in texts if text and text.strip()]
        if len(kept) < len(texts):
            rejects["empty"] += len(texts) - len(kept)
        for ids in tokenizer(kept)["input_ids"] if kept else ():
            ended = ids[-1:] == [tokenizer.eos_token_id]
            documents.append(array("I", ids if ended else [*ids, tokenizer.eos_token_id]))
    return documents


def _texts(files: Iterable[Path]) -> Iterator[list[str]]:
    """Column `text`, some documents at a time: a corpus may be larger than memory."""
    for path in files:
        try:
            file = pq.ParquetFile(path)
            if "text" not in file.schema_arrow.names:
                raise UserError(f"training data {path} lacks the column text")
            for batch in file.iter_batches(_BATCH_DOCUMENTS, columns=["text"]):
                yield batch.column(0).to_pylist()
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(f"training data {path} cannot be read: {error}") from error

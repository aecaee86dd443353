"""Which samples were trained in which step: the proof that none was lost or repeated.

    <stage>/attempts/<n>/ledger/<writer>/rank-<r>.jsonl
        {"resumed_from": {"writer": "1", "step": 50}, "world_size": 4, "samples": 900,
         "rows_per_step": 16}
        {"step": 51, "cursors": [800, 803, 801, 814], "samples": [17, 803, 5, 44]}
        ...

A writer is an attempt, or a generation of ranks inside one (`3`, then `3.2`), as in
`training.checkpoints`. Each rank appends what it really fed to the model, after the optimizer's
step: samples, and their places in the endless order. Lines are on disk (fsync) before the
checkpoint of their step is published. Steps after the last checkpoint of a killed writer are
trained again by the next: they are in both ledgers, and only one of them went into the weights.
`audit` follows that line back from the last writer:

    python -m training.ledger runs/<run>/sft
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from workspace.errors import CorruptWorkspaceError, UserError

FOLDER_NAME = "ledger"


class Origin(NamedTuple):
    """The checkpoint that a writer went on from."""

    writer: str
    step: int


class Ledger:
    """One rank's lines. `folder` is the attempt's."""

    def __init__(
        self,
        folder: Path,
        writer: str,
        *,
        rank: int,
        world_size: int,
        resumed_from: Origin | None,
        samples: int,
        rows_per_step: int,
    ) -> None:
        path = folder / FOLDER_NAME / writer / f"rank-{rank:04d}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        self._stream = path.open("ab", buffering=0)
        self._rows_per_step = rows_per_step
        self._write(
            {
                "resumed_from": resumed_from._asdict() if resumed_from else None,
                "world_size": world_size,
                "samples": samples,
                "rows_per_step": rows_per_step,
            }
        )

    def trained(self, step: int, places: Sequence[int], samples: Sequence[int]) -> None:
        """Add a line: `samples` were fed in `step`, `places` are theirs within it.

        The line is in the operating system's hands when this returns.
        """
        first = (step - 1) * self._rows_per_step
        cursors = [first + place for place in places]
        self._write({"step": step, "cursors": cursors, "samples": list(samples)})

    def flush(self) -> None:
        """Put all lines on the disk."""
        os.fsync(self._stream.fileno())

    def close(self) -> None:
        self._stream.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._stream.write(json.dumps(line).encode() + b"\n")


class Stretch(NamedTuple):
    """Steps `first` to `last` (both trained) of one writer."""

    writer: str
    first: int
    last: int


class Audit(NamedTuple):
    """What the weights went through. `faults` is empty when every sample had its turn."""

    stretches: list[Stretch]
    steps: int
    samples: int
    epochs: float
    retrained_steps: int  # trained, lost with a killed writer and trained again
    faults: list[str]


class _Trained(NamedTuple):
    cursor: int
    sample: int


class _Writer(NamedTuple):
    header: dict[str, Any]
    steps: dict[int, list[_Trained]]  # of all ranks
    ranks_of_step: Counter[int]

    @property
    def origin(self) -> Origin | None:
        found = self.header["resumed_from"]
        return Origin(**found) if found else None


def audit(stage: Path) -> Audit:
    """Follow the line of writers back from the last one and count every sample.

    Every pass over the samples must hold each of them exactly once; of the last pass, which ends
    with the stage, no sample may come twice. Raises `UserError` when there is no ledger.
    """
    writers = _read(stage)
    line = _winning_line(stage, writers)
    faults: list[str] = []
    trained: list[_Trained] = []
    for stretch in line:
        known = writers[stretch.writer]
        for step in range(stretch.first, stretch.last + 1):
            if known.ranks_of_step[step] != known.header["world_size"]:
                faults.append(f"step {step}: lines of {known.ranks_of_step[step]} ranks")
            trained += known.steps.get(step, [])
    header = writers[line[-1].writer].header
    steps, count = line[-1].last, int(header["samples"])
    faults += _faults(trained, steps * int(header["rows_per_step"]), count)
    every = sum(len(known.steps) for known in writers.values())
    return Audit(line, steps, count, len(trained) / count, every - steps, faults)


def _faults(trained: list[_Trained], expected: int, count: int) -> list[str]:
    """Places of the order that were left out or taken twice, then samples, pass by pass."""
    cursors = Counter(item.cursor for item in trained)
    faults = [f"place {cursor} of the order: left out" for cursor in range(expected)
              if cursor not in cursors]  # fmt: skip
    faults += [f"place {cursor}: {n} times" for cursor, n in cursors.items() if n > 1]
    faults += [f"place {cursor}: after the end" for cursor in cursors if cursor >= expected]
    passes: dict[int, Counter[int]] = {}
    for item in trained:
        passes.setdefault(item.cursor // count, Counter())[item.sample] += 1
    for epoch, times in sorted(passes.items()):
        faults += [f"pass {epoch}: sample {s} trained {n} times" for s, n in times.items() if n > 1]
        if expected >= (epoch + 1) * count:
            lost = [sample for sample in range(count) if sample not in times]
            faults += [f"pass {epoch}: sample {sample} left out" for sample in lost]
    return faults


def _winning_line(stage: Path, writers: dict[str, _Writer]) -> list[Stretch]:
    name, last = _end(stage, writers)
    line: list[Stretch] = []
    while True:
        origin = writers[name].origin
        line.append(Stretch(name, (origin.step if origin else 0) + 1, last))
        if origin is None:
            return line[::-1]
        name, last = origin
        if name not in writers:
            raise CorruptWorkspaceError(f"{stage}: the ledger of attempt {name} is missing")


def _end(stage: Path, writers: dict[str, _Writer]) -> tuple[str, int]:
    """The newest writer of the attempt that finished the stage, or of all, and its last step."""
    try:
        result = json.loads((stage / "result.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        name = max((n for n, known in writers.items() if known.steps), key=_age)
        return name, max(writers[name].steps)
    own = [name for name in writers if _age(name)[0] == result["attempt"]]
    return max(own, key=_age), int(result["steps"])


def _age(writer: str) -> tuple[int, int]:
    attempt, _, generation = writer.partition(".")
    return int(attempt), int(generation or 1)


def _read(stage: Path) -> dict[str, _Writer]:
    writers = {}
    for folder in stage.glob(f"attempts/*/{FOLDER_NAME}/*"):
        read = [_read_file(path) for path in sorted(folder.glob("rank-*.jsonl"))]
        headers = [header for header, _ in read if header]
        if not headers:
            continue
        steps: dict[int, list[_Trained]] = {}
        ranks: Counter[int] = Counter()
        for _, lines in read:
            for step, trained in lines.items():
                steps.setdefault(step, []).extend(trained)
                ranks[step] += 1
        writers[folder.name] = _Writer(headers[0], steps, ranks)
    if not any(known.steps for known in writers.values()):
        raise UserError(f"{stage} has no ledger of samples: its trainer keeps none, or never began")
    return writers


def _read_file(path: Path) -> tuple[dict[str, Any] | None, dict[int, list[_Trained]]]:
    header: dict[str, Any] | None = None
    lines: dict[int, list[_Trained]] = {}
    for text in path.read_bytes().split(b"\n")[:-1]:  # a torn last line never counted
        line = json.loads(text)
        if "step" in line:
            pairs = zip(line["cursors"], line["samples"], strict=True)
            lines[line["step"]] = [_Trained(*pair) for pair in pairs]
        else:
            header = line
    return header, lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the audit of a stage; 1 when a sample was lost or repeated."""
    parser = argparse.ArgumentParser(prog="ledger", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stage", type=Path, help="runs/<run>/<stage>")
    found = audit(parser.parse_args(arguments).stage)
    for stretch in found.stretches:
        print(f"attempt {stretch.writer}: steps {stretch.first} to {stretch.last}")
    print(
        f"{found.steps} steps, {found.samples} samples, {found.epochs:.2f} passes, "
        f"{found.retrained_steps} steps trained again after a failure"
    )
    print("\n".join(found.faults) or "every sample exactly once in every pass")
    return int(bool(found.faults))


if __name__ == "__main__":
    sys.exit(main())

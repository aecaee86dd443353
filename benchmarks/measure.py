"""What every benchmark shares: figures beside their targets and peers, printed and kept.

    report = Report("ingest", "tables")
    report.add("adjacency F1", 0.941, target=">= 0.93", peer="pdfplumber 0.11", peer_value=0.57)
    sys.exit(report.finish())

`finish` prints one table and writes `benchmarks/results/<area>_<name>.json` with the machine, the
commit and the date; a short form (`--short`) goes to `<area>_<name>_short.json`. Quote CPU seconds
and ratios: machines are shared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

from workspace import publish
from workspace.manifest import code_version, now

RESULTS: Final = Path(__file__).parent / "results"
_TARGET: Final = re.compile(r"(>=|<=|<|>|=)\s*([-+0-9.e]+)")


@dataclass(frozen=True)
class Figure:
    """One measured number; `target` is a comparison such as `>= 0.93`, or empty."""

    name: str
    value: float
    unit: str = ""
    target: str = ""
    peer: str = ""
    peer_value: float | None = None
    published: bool = False  # the peer's figure is its publisher's, not measured in this run

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without one."""
        if not self.target:
            return None
        match = _TARGET.fullmatch(self.target.strip())
        if match is None:
            raise ValueError(f"target {self.target!r} is not a comparison with a number")
        sign, limit = match[1], float(match[2])
        value = self.value
        return {
            ">=": value >= limit,
            "<=": value <= limit,
            "<": value < limit,
            ">": value > limit,
            "=": value == limit,
        }[sign]

    @property
    def ratio(self) -> float | None:
        """Ours over the peer's."""
        return self.value / self.peer_value if self.peer_value else None


@dataclass
class Report:
    """Figures of one benchmark run."""

    area: str
    name: str
    short: bool = False
    notes: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    commit: str = ""  # and date, of figures that an earlier run left on disk; else those of now
    date: str = ""
    folder: Path = RESULTS  # of the file

    def add(
        self,
        name: str,
        value: float,
        unit: str = "",
        *,
        target: str = "",
        peer: str = "",
        peer_value: float | None = None,
        published: bool = False,
    ) -> None:
        """Add a figure."""
        self.figures.append(Figure(name, value, unit, target, peer, peer_value, published))

    @property
    def path(self) -> Path:
        """The file that `finish` writes."""
        return self.folder / f"{self.area}_{self.name}{'_short' if self.short else ''}.json"

    def finish(self, show: Callable[[Report], None] | None = None) -> int:
        """Print the table (`show`: another one) and write the file. Returns 1 when a target is
        missed."""
        (show or _print)(self)
        self.folder.mkdir(parents=True, exist_ok=True)
        publish.write_text(self.path, json.dumps(self._as_json(), indent=1) + "\n")
        return int(any(figure.met is False for figure in self.figures))

    def _as_json(self) -> dict[str, object]:
        figures = [
            {**asdict(figure), "met": figure.met, "ratio": figure.ratio} for figure in self.figures
        ]
        return {
            "area": self.area,
            "name": self.name,
            "short": self.short,
            "figures": figures,
            "notes": self.notes,
            "machine": f"{os.cpu_count()} x {_cpu_model()}, {platform.system()}",
            "commit": self.commit or code_version(),
            "date": self.date or now(),
        }


def parser(about: str) -> argparse.ArgumentParser:
    """A benchmark's command line, with the `--short` that all of them have."""
    made = argparse.ArgumentParser(description=about)
    made.add_argument("--short", action="store_true", help="the form of a few minutes")
    return made


def shared_data() -> Path:
    """The folder of documents with ground truth. Raises `SystemExit` naming it when absent."""
    root = Path(__file__).resolve().parents[1]
    folder = Path(os.environ.get("DSM_SHARED", root.parent / "shared")) / "data"
    if not folder.is_dir():
        raise SystemExit(f"{folder} does not exist: set DSM_SHARED to the folder that holds data/")
    return folder


@contextmanager
def cpu_seconds() -> Iterator[list[float]]:
    """CPU seconds of this process and of its ended children, appended to the list on leaving."""
    spent: list[float] = []
    before = os.times()
    yield spent
    after = os.times()
    spent.append(sum(after[:4]) - sum(before[:4]))


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    match = re.search(r"model name\s*:\s*(.+)", text)
    return match[1] if match else platform.machine()


def _print(report: Report) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    title = f"{report.area}: {report.name}{' (short)' if report.short else ''}"
    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    for column, justify in _COLUMNS:
        table.add_column(column, justify="right" if justify else "left")
    for figure in report.figures:
        table.add_row(*_cells(figure))
    # A log or a file has no width of its own.
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(table)
    for note in report.notes:
        console.print(f"- {note}", markup=False, highlight=False)


_COLUMNS: Final[Sequence[tuple[str, bool]]] = (
    ("figure", False),
    ("ours", True),
    ("target", True),
    ("", False),
    ("peer", False),
    ("peer's", True),
    ("ours / peer's", True),
)


def _cells(figure: Figure) -> list[str]:
    met = {True: "[green]met[/green]", False: "[red]missed[/red]", None: ""}[figure.met]
    peer = f"{figure.peer} (published)" if figure.published else figure.peer
    return [
        figure.name,
        f"{figure.value:,.4g} {figure.unit}".rstrip(),
        figure.target,
        met,
        peer,
        "" if figure.peer_value is None else f"{figure.peer_value:,.4g}",
        "" if figure.ratio is None else f"{figure.ratio:.2f}x",
    ]

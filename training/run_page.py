"""A run as one HTML page that needs nothing else: state, story, curves, goodput, answers, lineage.

    python -m training.run_page WORKSPACE/runs/RUN [--out FILE]

Written as `runs/<run>/run.html` while a run goes on and at its end (`PageWriter`), atomically. The
texts in it are other people's and hostile (answers, documents' names, errors): the template escapes
them, and what the page's script draws comes as JSON that cannot leave its element and is put in as
text. The page's policy lets it load nothing and run no script but its own.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import quote

import jinja2
import pyarrow.parquet as pq
from markupsafe import Markup

from training.goodput.account import account_run
from training.goodput.buckets import MEANINGS, MICROSECONDS, Bucket
from training.goodput.prices import read_prices
from training.memory_watch import newest_usage
from training.metrics import History, read_history
from training.rollouts import read_rollouts
from training.run_curves import curves_of
from training.run_record import RunFolder, RunRecord
from training.run_story import STAGE_TITLES, at, attempts_of, spoken, state_of, story_of
from training.trainers.settings import StageName
from workspace import publish
from workspace.errors import DsmError, UserError
from workspace.page_style import report_style
from workspace.page_templates import page_templates
from workspace.script_data import embed_json, source_hash

log = logging.getLogger(__name__)

PAGE_NAME: Final = "run.html"
WRITE_EVERY_S: Final = 15.0
_LEAST_PAUSES: Final = (
    20.0  # times what writing it took: a long history costs 5 % of a core at most
)
_TEMPLATES: Final = Path(__file__).resolve().parent / "templates"
_MOST_RANKS: Final = 512
_CALM: Final = (
    Bucket.PRODUCTIVE, Bucket.EVALUATION, Bucket.CHECKPOINT, Bucket.LOAD, Bucket.STARTUP,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m training.run_page", description="Write the page of a run."
    )
    parser.add_argument("run", type=Path, help="WORKSPACE/runs/RUN")
    parser.add_argument("--out", type=Path, help=f"file to write (default: RUN/{PAGE_NAME})")
    options = parser.parse_args(arguments)
    try:
        print(write_page(options.run, options.out))
    except DsmError as error:
        print(f"run_page: {error}", file=sys.stderr)
        return 1
    return 0


def write_page(run: Path, out: Path | None = None) -> Path:
    """Write the page of the run in folder `run`; returns where. Raises `UserError` without one."""
    target = out or run / PAGE_NAME
    publish.write_text(target, render(run, beside=target.parent))
    return target


class PageWriter:
    """Keeps a run's page up to date, seldom enough to cost nothing; its block's end writes it."""

    def __init__(self, run: Path) -> None:
        self.path = run / PAGE_NAME
        self._run = run
        self._due = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.write()

    def refresh(self) -> None:
        """Write the page if that is due."""
        if time.monotonic() >= self._due:
            self.write()

    def write(self) -> None:
        """Write the page now. A page that cannot be written does not end a training."""
        began = time.monotonic()
        try:
            write_page(self._run)
        except (DsmError, OSError) as error:
            log.warning("the run's page was not written: %s", error)
        took = time.monotonic() - began
        self._due = time.monotonic() + max(WRITE_EVERY_S, _LEAST_PAUSES * took)


@dataclass(frozen=True)
class Share:
    """A bucket of the run's time."""

    name: str
    meaning: str
    hours: str
    share: float | None  # of what was allocated; None for the queue
    calm: bool


def render(run: Path, *, beside: Path | None = None, now: float | None = None) -> str:
    """The page's HTML. Its links are relative to the folder `beside`."""
    folder = RunFolder(run)
    record = folder.read_record()
    if record is None:
        raise UserError(f"{run} is not the folder of a run: there is no run.json in it")
    now = time.time() if now is None else now
    histories = {name: read_history(folder.stage(name).root) for name in record.stages}
    story, older = story_of(folder)
    script = (_TEMPLATES / "run.js").read_text(encoding="utf-8")
    stages = [
        {"name": name, "title": STAGE_TITLES[name], **curves_of(history)}
        for name, history in histories.items()
        if history.steps
    ]
    rollouts = [
        {"stage": name, **asdict(rollout)}
        for name in record.stages
        for rollout in read_rollouts(folder.stage(name).root)
    ]
    return _environment().get_template("run.html").render(
        record=record,
        state=state_of(folder, record, histories, now),
        written=at(now),
        cards=_cards(record, histories),
        stages=stages,
        story=story,
        older=older,
        attempts=attempts_of(folder, record),
        goodput=_goodput(run, now),
        ranks=_ranks(folder, record),
        lineage=_lineage(folder, record),
        settings=json.dumps(record.settings, indent=1, ensure_ascii=False),
        has_rollouts=bool(rollouts),
        final=folder.final.exists(),
        root=_link(run, beside or run),
        style=Markup(report_style() + (_TEMPLATES / "run.css").read_text(encoding="utf-8")),  # noqa: S704
        script=Markup(script),  # noqa: S704  our own files
        script_hash=source_hash(script),
        data=Markup(  # noqa: S704
            embed_json({"stages": stages, "rollouts": rollouts})
        ),
    )  # fmt: skip


def _environment() -> jinja2.Environment:
    environment = page_templates(_TEMPLATES)
    environment.filters["percent"] = lambda value: f"{100 * value:.1f} %"
    environment.filters["quoted"] = quote
    return environment


def _link(run: Path, beside: Path) -> str:
    """The run's folder as seen from the page, ready for a link."""
    return quote(os.path.relpath(run.resolve(), beside.resolve()))


def _cards(record: RunRecord, histories: dict[StageName, History]) -> list[tuple[str, str, str]]:
    """Figures of the newest stage: name, value, what it is compared with."""
    trained = [history.steps for history in histories.values() if history.steps]
    if not trained:
        return []
    steps = trained[-1]
    first, last = steps[0], steps[-1]
    # GRPO's loss is about 0 whatever is learned.
    losses = [("Loss", f"{last.loss:.3f}", f"{first.loss:.3f} at first")]
    found = losses if last.stage != "rlvr" else []
    unseen = [step.extra["eval_loss"] for step in steps if "eval_loss" in step.extra]
    if unseen:
        found.append(("Loss on unseen rows", f"{unseen[-1]:.3f}", f"{min(unseen):.3f} at best"))
    rewards = [step.extra["reward"] for step in steps if "reward" in step.extra]
    if rewards:
        recent = rewards[-20:]
        mean = sum(recent) / len(recent)
        found.append(("Reward", f"{mean:.3f}", f"{rewards[0]:.3f} at first"))
    recent_steps = steps[-50:]
    seconds = sum(step.seconds for step in recent_steps)
    tokens = sum(step.tokens for step in recent_steps)
    if seconds:
        in_all = sum(step.tokens for steps in trained for step in steps)
        found.append(("Tokens per second", f"{tokens / seconds:,.0f}", f"{in_all:,} in all"))
    if last.mfu is not None:
        found.append(("MFU", f"{100 * last.mfu:.1f} %", "of the GPUs’ peak"))
    if last.memory:
        held = last.memory.get("gpu_reserved", last.memory["host"])
        where = "of a GPU" if "gpu_reserved" in last.memory else "of host memory"
        found.append(("Memory", f"{held / (1 << 30):.1f} GiB", where))
    trained_s = sum(step.seconds for steps in trained for step in steps)
    found.append(("Trained", spoken(trained_s), f"since {record.created[:16].replace('T', ' ')}"))
    return found


def _ranks(folder: RunFolder, record: RunRecord) -> list[tuple[str, ...]]:
    """Memory of each rank of the newest attempt: host, GPU tensors, GPU held, fragmentation."""
    started = [stage for name in record.stages if (stage := folder.stage(name)).latest_attempt()]
    if not started:
        return []
    usages = newest_usage(started[-1].attempt(started[-1].latest_attempt()))
    return [
        (
            str(rank),
            *map(_gib, used[:3]),
            f"{100 * used.fragmentation:.0f} %" if used.gpu_total else "",
        )
        for rank, used in sorted(usages.items())[:_MOST_RANKS]
    ]


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.2f}" if size else ""


def _goodput(run: Path, now: float) -> dict[str, Any]:
    """Where the time of the machines went."""
    account = account_run(run, now)
    prices = read_prices(run)
    paid = account.allocated
    shares = [
        Share(
            bucket.replace("_", " "),
            MEANINGS[bucket],
            spoken(value / MICROSECONDS),
            value / paid if paid and bucket is not Bucket.QUEUE else None,
            bucket in _CALM,
        )
        for bucket, value in account.time.items()
    ]
    return {
        "goodput": account.goodput,
        "ettr": account.ettr,
        "failures": account.failures,
        "cost": f"{account.cost(prices):,.2f} {prices.currency}" if prices else "",
        "shares": [share for share in shares if share.hours != spoken(0)],
    }


def _lineage(folder: RunFolder, record: RunRecord) -> list[tuple[str, str, str]]:
    """What the run was made from: name, value, remark."""
    found = [("base model", record.base_model, record.lineage.get("base_model", ""))]
    for name in record.stages:
        rows, documents = _held(folder.data(name))
        if rows:
            remark = f"of {documents:,} documents" if documents else ""
            found.append((f"rows of {name}", f"{rows:,}", remark))
    others = {name: key for name, key in record.lineage.items() if name != "base_model"}
    found += [(name.replace("_", " "), key, "") for name, key in others.items()]
    return found


def _held(path: Path) -> tuple[int, int]:
    """Rows of a stage's data, and the documents that they are from."""
    try:
        table = pq.read_table(path, columns=["doc_id"])
    except FileNotFoundError:
        return 0, 0
    except (KeyError, ValueError):  # rows of somebody else's making have no documents
        return pq.read_metadata(path).num_rows, 0
    return table.num_rows, len(table["doc_id"].unique())


if __name__ == "__main__":
    sys.exit(main())

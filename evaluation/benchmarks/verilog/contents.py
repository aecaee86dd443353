"""Which problems each public benchmark has, so that no other folder is scored under its name.

    require_whole("rtllm_v1.1", folder, ids)

A benchmark with holes, or another one's files, has another score. Ids: `contents.yaml` beside this
file. A set of your own in the layout of a benchmark may hold any problems: its name is that
benchmark's with `_layout` behind it, and it has neither errata nor an official score nor published
ones.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

import yaml

from workspace.errors import UserError

PATH: Final = Path(__file__).with_name("contents.yaml")
LAYOUT: Final = "_layout"
_MOST_NAMED: Final = 5


def layout_of(name: str) -> str:
    """The benchmark in whose layout the files of `name` are."""
    return name.removesuffix(LAYOUT)


@functools.cache
def known_ids() -> Mapping[str, frozenset[str]]:
    """All ids of each public benchmark."""
    found: dict[str, str] = yaml.safe_load(PATH.read_text(encoding="utf-8"))
    return {name: frozenset(ids.split()) for name, ids in found.items()}


def require_whole(name: str, source: Path, ids: Collection[str]) -> None:
    """Raises `UserError` when `ids`, of the files at `source`, are not all those of `name`."""
    wanted = known_ids()[name]
    found = frozenset(ids)
    if found == wanted:
        return
    faults = [
        f"{len(which)} {what} ({_some(which)})"
        for what, which in (("are missing", wanted - found), ("are not its own", found - wanted))
        if which
    ]
    others = [other for other, theirs in known_ids().items() if theirs == found]
    cure = f"these are the problems of {others[0]}" if others else "fetch upstream's folder again"
    raise UserError(
        f"{source} is not {name}: of its {len(wanted)} problems {' and '.join(faults)}: {cure}; "
        f"--limit asks fewer, and problems of your own are given as {name}{LAYOUT}={source}"
    )


def _some(ids: Collection[str]) -> str:
    named = sorted(ids)[:_MOST_NAMED]
    return ", ".join([*named, *(["..."] if len(ids) > len(named) else [])])

"""What changed in the corpus since an earlier manifest, for stages that need not start afresh.

    python -m corpus.changes --workspace DIR --since KEY      KEY: a manifest's key, `first` for all
    changes_since(Workspace(dir).corpus, key) -> Changes

`history/<number>-<key>.json` lists the documents of one manifest, each with a digest of what its
rows were made from: its settings, its place, its failures. The latest HISTORY lists are kept.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from workspace import publish
from workspace.errors import DsmError, UserError
from workspace.manifest import require_manifest
from workspace.paths import Workspace

HISTORY: Final = 20
FIRST: Final = "first"  # the key of a corpus without documents
_FOLDER: Final = "history"


class Listed(NamedTuple):
    """A document in a manifest's list; `revision` changes when its rows may have."""

    uris: tuple[str, ...]
    revision: str


class Changes(NamedTuple):
    """Documents by id, each list sorted; a file with new bytes is in `replaced`, too."""

    added: tuple[str, ...]
    removed: tuple[str, ...]
    changed: tuple[str, ...]  # the same bytes read with other settings, named anew, or recovered
    replaced: Mapping[str, tuple[str, str]]  # uri -> (old doc_id, new doc_id)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed)


def changes_since(folder: Path, key: str) -> Changes:
    """From the manifest `key` to the published one. Raises `UserError` for a key not kept."""
    manifest = require_manifest(folder, made_by="ingest")
    before = {} if key == FIRST else _read(folder, key)
    after = _read(folder, manifest.key)
    known = before.keys() & after.keys()
    removed = tuple(sorted(before.keys() - after.keys()))
    added = tuple(sorted(after.keys() - before.keys()))
    old = {uri: doc_id for doc_id in removed for uri in before[doc_id].uris}
    new = {uri: doc_id for doc_id in added for uri in after[doc_id].uris}
    return Changes(
        added=added,
        removed=removed,
        changed=tuple(sorted(d for d in known if before[d].revision != after[d].revision)),
        replaced={uri: (old[uri], new[uri]) for uri in sorted(old.keys() & new.keys())},
    )


def write_history(folder: Path, key: str, documents: Mapping[str, Listed]) -> list[Path]:
    """Add the list of the manifest `key`; returns all that are kept, oldest first."""
    older = [path for path in _by_age(folder) if _key(path) != key]
    number = int(older[-1].name.partition("-")[0]) + 1 if older else 1
    path = folder / _FOLDER / f"{number:06d}-{key}.json"
    listed = {doc_id: item._asdict() for doc_id, item in sorted(documents.items())}
    publish.write_json(path, listed)
    return [*older[-(HISTORY - 1) :], path]


def forget(folder: Path, kept: Sequence[Path]) -> None:
    """Remove lists that are not among `kept`. Call after publishing."""
    for path in (folder / _FOLDER).glob("*.json"):
        if path not in kept:
            path.unlink()


def _by_age(folder: Path) -> list[Path]:
    return sorted((folder / _FOLDER).glob("[0-9]*-*.json"))


def _key(path: Path) -> str:
    return path.stem.partition("-")[2]


def _read(folder: Path, key: str) -> dict[str, Listed]:
    path = next((path for path in _by_age(folder) if _key(path) == key), None)
    if path is None:
        known = ", ".join(map(_key, _by_age(folder))) or "none"
        raise UserError(
            f"{folder} keeps no list of documents for the manifest {key!r} (kept: {known}); "
            f"take everything as new: {FIRST!r}"
        )
    value = json.loads(path.read_text(encoding="utf-8"))
    return {doc_id: Listed(tuple(item["uris"]), item["revision"]) for doc_id, item in value.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the changes as JSON; 0 on success, 2 for a key or folder that is not there."""
    parser = argparse.ArgumentParser(prog="python -m corpus.changes", description=__doc__)
    parser.add_argument("--workspace", type=Path, required=True)
    parser.add_argument("--since", required=True, metavar="KEY", help=f"a key, or {FIRST!r}")
    given = parser.parse_args(arguments)
    try:
        changes = changes_since(Workspace(given.workspace).corpus, given.since)
    except DsmError as error:
        print(f"changes: {error}", file=sys.stderr)
        return 2
    print(json.dumps(changes._asdict(), indent=2, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())

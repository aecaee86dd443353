"""Why something was left out: every reason code, what it means, when it is tried again, the cure.

    REASONS["timeout"]                  Reason(meaning, retry, cure)
    Tries.read(folder).due(doc_id, …)   whether a plain run should try a document again

`retry` is one of
    again   may succeed as it is: a plain run tries it up to `max_tries` times in all, and once more
            when a limit was changed; so a schedule does not hang on the same file each night
    limit   succeeds only under a higher limit: a plain run tries it when a limit was changed
    cure    needs another file, tool or password: tried with `--retry-quarantined` alone
    keep    a part was lost that no retry brings back; the rest of the document is in the corpus

Tries are counted in `tries.json` beside the tables, not in them: how often something was tried says
nothing about the document.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple, Self

from workspace import publish

Retry = Literal["again", "limit", "cure", "keep"]
TRIES_NAME: Final = "tries.json"


class Reason(NamedTuple):
    """One code of `quarantine.reason`."""

    meaning: str
    retry: Retry
    cure: str


_OURS: Final = "report it with the file: this is a fault of ours or of a library"

REASONS: Final[Mapping[str, Reason]] = {
    "empty": Reason("the file holds nothing", "cure", "replace the file"),
    "unreadable": Reason(
        "the file could not be read from its place",
        "again",
        "give read permission, or mend the disk or mount",
    ),
    "encrypted": Reason(
        "a password is needed", "cure", "give it in a file with --passwords, or remove it"
    ),
    "nested_too_deep": Reason("an archive inside too many others", "limit", "raise archive_depth"),
    "link": Reason("a link or device in an archive", "keep", "none; links are not followed"),
    "no_registers": Reason("a register list without registers", "cure", "mend the list"),
    "corrupt": Reason("the file is damaged", "cure", "replace the file, or save it anew"),
    "no_pages": Reason("the file opens and has no page", "cure", "replace the file"),
    "no_text": Reason("nothing is left to read", "cure", "nothing, or replace the file"),
    "not_text": Reason("named as text, but holds other data", "cure", "rename or replace the file"),
    "syntax": Reason("the format's rules are broken", "cure", "mend the file at the line given"),
    "unsupported": Reason("no parser takes this kind of file", "cure", "convert it, or exclude it"),
    "too_large": Reason("larger than a limit", "limit", "raise the limit that the detail names"),
    "timeout": Reason(
        "took longer than its limit and was stopped",
        "again",
        "raise page_timeout_s or document_timeout_s",
    ),
    "out_of_memory": Reason(
        "needed more memory than its limit", "again", "raise memory_limit_mb, or run fewer workers"
    ),
    "too_many_failures": Reason(
        "parser processes died on it again and again", "again", "exclude the file; " + _OURS
    ),
    "crash": Reason("the parser process died", "cure", _OURS),
    "parser_error": Reason("the parser failed", "cure", _OURS),
    "page_error": Reason("the page could not be read", "cure", _OURS),
    "summarise_error": Reason("no summaries could be made", "cure", _OURS),
    "chunk_error": Reason("no chunks could be made", "cure", _OURS),
    "join_error": Reason("tables over page breaks stay in parts", "cure", _OURS),
    "fingerprint_error": Reason("duplicates of it cannot be found", "cure", _OURS),
    "needs_libreoffice": Reason(
        "LibreOffice reads this format and is missing",
        "cure",
        "apt install libreoffice-writer libreoffice-impress, then --retry-quarantined",
    ),
    "needs_pymupdf": Reason(
        "PyMuPDF reads this format and is not in use",
        "cure",
        "pip install pymupdf, or --pdf-backend pymupdf",
    ),
    "needs_tool": Reason(
        "a program that reads this format is missing",
        "cure",
        "install what the detail names, then --retry-quarantined",
    ),
    "needs_hjson": Reason(
        "the package hjson reads this register list and is missing",
        "cure",
        'pip install "dsm-pipeline[registers]", then --retry-quarantined',
    ),
    "needs_systemrdl": Reason(
        "the package systemrdl-compiler reads this register list and is missing",
        "cure",
        'pip install "dsm-pipeline[registers]", then --retry-quarantined',
    ),
    "too_deep": Reason("parts of it are nested too deep", "cure", "flatten the file"),
    "too_many_registers": Reason(
        "a register list was longer than its limit", "keep", "split the list"
    ),
    "corrupt_image": Reason("a picture is damaged", "keep", "none; the text is in the corpus"),
    "unsupported_image": Reason(
        "a picture of a kind that is not read", "keep", "save it as PNG in the document"
    ),
    "pixel_cap": Reason("a picture has too many pixels", "keep", "raise max_page_pixels"),
    "rows_dropped": Reason("a table was longer than its limit", "keep", "split the table"),
    "spans_lost": Reason("merged cells could not be told", "keep", "none; the cells are there"),
    "formula_without_value": Reason(
        "a cell's formula was saved without its value", "keep", "open and save the workbook"
    ),
    "undefined_macro": Reason(
        "a macro is defined in no file here",
        "keep",
        "put its definition into the file",
    ),
}


def describe(reason: str) -> Reason:
    """The entry of `reason`; codes of parsers that were added outside of it explain themselves."""
    return REASONS.get(reason, Reason(reason.replace("_", " "), "cure", "see the detail"))


def is_retried(reason: str) -> bool:
    """Whether a plain run may try it again (`quarantine.retry`)."""
    return describe(reason).retry in ("again", "limit")


class Tries(NamedTuple):
    """How often each document was tried that failed, and under which limits: (tries, limits)."""

    counts: Mapping[str, tuple[int, str]]

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Those of a corpus folder; none when nothing failed yet."""
        try:
            text = (folder / TRIES_NAME).read_text(encoding="utf-8")
        except FileNotFoundError:
            return cls({})
        return cls(
            {doc_id: (int(n), str(limits)) for doc_id, (n, limits) in json.loads(text).items()}
        )

    def write(self, folder: Path) -> None:
        """Publish them; nothing is left when there are none."""
        if self.counts:
            publish.write_json(folder / TRIES_NAME, self.counts)
        else:
            (folder / TRIES_NAME).unlink(missing_ok=True)

    def of(self, doc_id: str) -> int:
        """At least 1: what is in quarantine was tried."""
        return self.counts.get(doc_id, (1, ""))[0]

    def due(self, doc_id: str, reasons: Iterable[str], *, limits: str, max_tries: int) -> bool:
        """Whether a plain run should try the document again."""
        policies = {describe(reason).retry for reason in reasons}
        tries, under = self.counts.get(doc_id, (1, limits))
        if policies & {"again", "limit"} and under != limits:
            return True
        return "again" in policies and tries < max_tries

    def attempts(self, retried: Iterable[str], held: Iterable[str]) -> dict[str, int]:
        """Documents tried more than once, once more those of `retried`, among those of `held`."""
        again = set(retried)
        known = set(held) & (again | self.counts.keys())
        counted = {doc_id: self.of(doc_id) + (doc_id in again) for doc_id in sorted(known)}
        return {doc_id: tries for doc_id, tries in counted.items() if tries > 1}

    def after(
        self, tried: Iterable[str], failed: Iterable[str], held: Iterable[str], limits: str
    ) -> Tries:
        """These after a run that tried `tried`, of which `failed` failed; `held` are all there."""
        known = set(held)
        counts = {doc_id: entry for doc_id, entry in self.counts.items() if doc_id in known}
        failing = set(failed)
        for doc_id in tried:
            before = self.counts.get(doc_id)
            if doc_id in failing or before is not None:
                counts[doc_id] = (before[0] + 1 if before else 1, limits)
        return Tries(dict(sorted(counts.items())))

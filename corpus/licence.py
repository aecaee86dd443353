"""The licence that a document states in plain words, as an SPDX identifier where there is one.

Only outright statements count. A document that quotes several different licences (a survey of
licences, a bundle) gets none.
"""

from __future__ import annotations

import re
from typing import Final

_SPDX: Final = re.compile(
    r"SPDX-License-Identifier:\s*"
    r"([A-Za-z0-9.+-]+(?:\s+(?:AND|OR|WITH)\s+[A-Za-z0-9.+-]+)*)"
)
_NAMED: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("SHL-2.1", r"solderpad hardware licen[cs]e,? (?:v|version )?2\.1"),
        ("SHL-0.51", r"solderpad hardware licen[cs]e,? (?:v|version )?0\.51"),
        ("Apache-2.0", r"apache licen[cs]e,?\s*(?:v|version )\s?2(?:\.0)?\b"),
        (
            "CC-BY-NC-SA-4.0",
            r"creative commons attribution-?\s?non-?commercial-?\s?share-?alike 4\.0"
            r"|\bcc[ -]by-nc-sa[ -]4\.0",
        ),
        (
            "CC-BY-SA-4.0",
            r"creative commons attribution-?\s?share-?alike 4\.0|\bcc[ -]by-sa[ -]4\.0",
        ),
        ("CC-BY-4.0", r"creative commons attribution 4\.0|\bcc[ -]by[ -]4\.0"),
        ("MIT", r"\bmit licen[cs]e\b|permission is hereby granted, free of charge, to any person"),
        ("ISC", r"\bisc licen[cs]e\b"),
        (
            "BSD-3-Clause",
            r"\b(?:3-clause bsd|bsd 3-clause|new bsd) licen[cs]e"
            r"|neither the name of [^.]{3,120}may be used to endorse",
        ),
        ("BSD-2-Clause", r"\b(?:2-clause bsd|bsd 2-clause|simplified bsd) licen[cs]e"),
        ("CERN-OHL-S-2.0", r"cern-ohl-s(?:-2\.0| v2)"),
        ("GFDL", r"gnu free documentation licen[cs]e"),
        ("LGPL", r"gnu lesser general public licen[cs]e"),
        ("GPL-3.0", r"gnu general public licen[cs]e,?\s*(?:v|version )\s?3"),
        ("GPL-2.0", r"gnu general public licen[cs]e,?\s*(?:v|version )\s?2"),
        ("GPL", r"gnu general public licen[cs]e"),
    )
)
# A more exact name makes the general one redundant.
_COVERED: Final[dict[str, tuple[str, ...]]] = {
    "GPL": ("GPL-2.0", "GPL-3.0", "LGPL"),
    "Apache-2.0": ("SHL-2.1", "SHL-0.51"),  # Solderpad is written as an Apache licence with changes
}


def find_licence(text: str) -> str:
    """SPDX identifier or family name, "" when none or more than one is stated."""
    tagged = sorted({match[1] for match in _SPDX.finditer(text)})
    if tagged:
        return tagged[0] if len(tagged) == 1 else ""
    flat = re.sub(r"\s+", " ", text)
    found = {name for name, pattern in _NAMED if pattern.search(flat)}
    for general, exact in _COVERED.items():
        if found & set(exact):
            found.discard(general)
    return found.pop() if len(found) == 1 else ""

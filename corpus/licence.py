"""The licence that a document states in plain words, as an SPDX expression.

Only outright statements count. A document that quotes several different licences (a survey of
licences, a bundle) gets none, and neither does a family without its version ("the GPL"): there is
no SPDX identifier for it. `SPDX-License-Identifier:` tags are checked and put into SPDX's spelling
by `license-expression`; the plain-word forms are our own, since the detectors of source trees need
the whole text of a licence, which documents seldom hold.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

_ID: Final = r"\(*[A-Za-z0-9.+-]+\)*"
_SPDX: Final = re.compile(
    rf"SPDX-License-Identifier:[ \t]*({_ID}(?:[ \t]+(?:AND|OR|WITH)[ \t]+{_ID}){{0,20}})"
)
_CC: Final = r"creative commons attribution"
_NAMED: Final[tuple[tuple[str, re.Pattern[str]], ...]] = tuple(
    (name, re.compile(pattern, re.IGNORECASE))
    for name, pattern in (
        ("SHL-2.1", r"solderpad hardware licen[cs]e,? (?:v|version )?2\.1"),
        ("SHL-0.51", r"solderpad hardware licen[cs]e,? (?:v|version )?0\.51"),
        ("Apache-2.0", r"apache licen[cs]e,?\s*(?:v|version )\s?2(?:\.0)?\b"),
        (
            "CC-BY-NC-SA-4.0",
            _CC + r"-?\s?non-?commercial-?\s?share-?alike 4\.0|\bcc[ -]by-nc-sa[ -]4\.0",
        ),
        ("CC-BY-SA-4.0", _CC + r"-?\s?share-?alike 4\.0|\bcc[ -]by-sa[ -]4\.0"),
        ("CC-BY-4.0", _CC + r" 4\.0|\bcc[ -]by[ -]4\.0"),
        ("MIT", r"\bmit licen[cs]e\b|permission is hereby granted, free of charge, to any person"),
        ("ISC", r"\bisc licen[cs]e\b"),
        (
            "BSD-3-Clause",
            r"\b(?:3-clause bsd|bsd 3-clause|new bsd) licen[cs]e"
            r"|neither the name of [^.]{3,120}may be used to endorse",
        ),
        ("BSD-2-Clause", r"\b(?:2-clause bsd|bsd 2-clause|simplified bsd) licen[cs]e"),
        (
            "CERN-OHL-S-2.0",
            r"cern-ohl-s(?:-2\.0| v2)|cern open hardware licen[cs]e v\S* ?2.{1,5}strong",
        ),
        (
            "CERN-OHL-W-2.0",
            r"cern-ohl-w(?:-2\.0| v2)|cern open hardware licen[cs]e v\S* ?2.{1,5}weak",
        ),
        (
            "CERN-OHL-P-2.0",
            r"cern-ohl-p(?:-2\.0| v2)|cern open hardware licen[cs]e v\S* ?2.{1,5}perm",
        ),
    )
)
# GNU licences say their version before or after their name, and may allow later ones.
_GNU: Final = re.compile(
    r"(?:version (?P<before>[123](?:\.[0-9])?) of the )?gnu "
    r"(?P<name>free documentation|lesser general public|library general public|affero general "
    r"public|general public) licen[cs]e"
    r"(?:[ ,(]*(?:as published by the free software foundation[, ;]*)?"
    r"(?:either )?(?:v|version )\s?(?P<after>[123](?:\.[0-9])?))?"
    r"(?P<later>.{0,60}?\b(?:any later|or later|or newer))?",
    re.IGNORECASE,
)
_GNU_NAMES: Final = {
    "free documentation": "GFDL",
    "lesser general public": "LGPL",
    "library general public": "LGPL",
    "affero general public": "AGPL",
    "general public": "GPL",
}
# Solderpad is written as an Apache licence with changes.
_COVERED: Final[dict[str, tuple[str, ...]]] = {"Apache-2.0": ("SHL-2.1", "SHL-0.51")}


def find_licence(text: str) -> str:
    """SPDX expression, "" when none or more than one is stated."""
    tagged = {_normalise(match[1]) for match in _SPDX.finditer(text)}
    if tagged:
        return tagged.pop() if len(tagged) == 1 else ""
    flat = re.sub(r"\s+", " ", text)
    found = {name for name, pattern in _NAMED if pattern.search(flat)}
    for general, exact in _COVERED.items():
        if found & set(exact):
            found.discard(general)
    found |= _gnu_licences(flat)
    return found.pop() if len(found) == 1 else ""


def _gnu_licences(flat: str) -> set[str]:
    """The most exact statement on each GNU licence; "" stands for one without a version."""
    stated: dict[str, set[str]] = {}
    for match in _GNU.finditer(flat):
        name = _GNU_NAMES[match["name"].lower()]
        version = match["before"] or match["after"]
        forms = stated.setdefault(name, set())
        if version:
            version = version if "." in version else f"{version}.0"
            forms.add(f"{name}-{version}-{'or-later' if match['later'] else 'only'}")
    found = set()
    for forms in stated.values():
        later = {form for form in forms if form.endswith("-or-later")}
        found |= later or forms or {""}
    return found


def _normalise(tag: str) -> str:
    """The expression in SPDX's spelling, "" when it is none."""
    from license_expression import ExpressionError, ExpressionParseError

    # SPDX allows "+" (or later) behind any identifier, the library behind those it has seen it at.
    for known in (tag, tag.replace("+", "")):
        try:
            _licensing().parse(known, validate=True, strict=True)
            return str(_licensing().parse(tag).render())
        except (ExpressionError, ExpressionParseError):
            continue
    return ""


@cache
def _licensing() -> Any:
    from license_expression import get_spdx_licensing

    return get_spdx_licensing()

"""Personal data: what is found, what is not, and that nothing of it reaches the corpus."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pymupdf
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest_runs import rows, run_ingest, tables

from corpus.redaction import KINDS, find_personal_data

# Examples that their issuers publish: the IBAN registry, the card networks' test numbers, the
# fictitious and documentation ranges of numbers and addresses.
FOUND = [
    ("email", "mail jane.doe+x@mail.example.com, please", "jane.doe+x@mail.example.com"),
    ("email", "<mailto:a@b.org>", "a@b.org"),
    ("phone", "ring +44 20 7946 0958 today", "+44 20 7946 0958"),
    ("phone", "Tel.: (0171) 123-4567", "(0171) 123-4567"),
    ("phone", "phone 555-010-9999 ext", "555-010-9999"),
    ("iban", "pay to GB29 NWBK 6016 1331 9268 19.", "GB29 NWBK 6016 1331 9268 19"),
    ("iban", "DE89370400440532013000 TODAY", "DE89370400440532013000"),
    ("credit_card", "card 4111 1111 1111 1111", "4111 1111 1111 1111"),
    ("credit_card", "378282246310005", "378282246310005"),
    ("ip", "host 192.0.2.17:8080", "192.0.2.17"),
    ("ip", "host 2001:db8::8a2e:370:7334 up", "2001:db8::8a2e:370:7334"),
]
NOT_FOUND = [
    "version 1.2.3.4 of the core",
    "4111 1111 1111 1112",  # a wrong check digit
    "GB29 NWBK 6016 1331 9268 18",
    "module at @(posedge clk) and a@b",
    "0x0010 2024-05-17 12:30:45 3.14159265358979 1234567890123",
    "addresses 0xFFFF_FFFF to 0000_1000, section 5.3.2.1.7 and 300.300.300.300",
    "00:1b:44",
]


@pytest.mark.parametrize(("kind", "text", "found"), FOUND)
def test_found(kind: str, text: str, found: str) -> None:
    (finding,) = find_personal_data(text, KINDS)
    assert (finding.kind, text[finding.start : finding.end]) == (kind, found)
    assert find_personal_data(text, [other for other in KINDS if other != kind]) == []


@pytest.mark.parametrize("text", NOT_FOUND)
def test_not_found(text: str) -> None:
    assert find_personal_data(text, KINDS) == []


@given(st.text("a@.+4-1 :GB29()/\n", max_size=80))
def test_findings_of_any_text_are_in_order_and_apart(text: str) -> None:
    found = find_personal_data(text, KINDS)
    assert all(0 <= a.start < a.end <= len(text) for a in found)
    assert all(a.end <= b.start for a, b in pairwise(found))


SECRETS = ("jane.doe@example.com", "+44 20 7946 0958", "GB29 NWBK 6016 1331 9268 19")


def test_no_table_holds_what_is_redacted(tmp_path: Path) -> None:
    source = tmp_path / "s"
    source.mkdir()
    text = (
        f"# Contact {SECRETS[0]}\n\nWrite to {SECRETS[0]} or ring {SECRETS[1]} about the fan of "
        f"the board.\n\n| who | account |\n|---|---|\n| Jane | {SECRETS[2]} |\n| Joe | none |\n\n"
        f"```\nassign y = a; // {SECRETS[0]}\n```\n"
    )
    (source / "a.md").write_text(text, encoding="utf-8")
    manifest = run_ingest(tmp_path / "w", source, redact=["iban", "phone", "email"])
    written = json.dumps(tables(tmp_path / "w"), default=repr)
    assert not any(secret in written for secret in SECRETS)
    for placeholder in ("[EMAIL]", "[PHONE]", "[IBAN]"):
        for table in ("elements", "chunks", "pages"):
            shown = json.dumps(rows(tmp_path / "w", table), default=repr)
            assert placeholder in shown, (placeholder, table)
    assert "[IBAN]" in rows(tmp_path / "w", "tables")[0]["html"]
    counts = manifest.notes["redacted"]
    assert counts["phone"] == 1 and counts["email"] >= 3 and counts["iban"] >= 1
    assert run_ingest(tmp_path / "w", source, redact=["email", "iban", "phone"]).key == manifest.key


def test_pages_with_findings_lose_their_image_and_the_others_do_not(tmp_path: Path) -> None:
    path = tmp_path / "two.pdf"
    with pymupdf.open() as document:
        for text in ("Nothing but fans on this page.", f"Write to {SECRETS[0]} for more fans."):
            document.new_page().insert_text((72, 100), text)
        document.save(path)
    run_ingest(tmp_path / "w", path, redact=["email"])
    first, second = rows(tmp_path / "w", "pages")
    assert first["image"]["bytes"] and "redacted" not in first["flags"]
    assert second["image"] is None and "redacted" in second["flags"]
    assert "[EMAIL]" in second["text"]


def test_off_by_default(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(f"Write to {SECRETS[0]} about the fan.", encoding="utf-8")
    manifest = run_ingest(tmp_path / "w", tmp_path / "a.txt")
    assert SECRETS[0] in rows(tmp_path / "w", "elements")[0]["text"]
    assert manifest.notes["redacted"] == {}

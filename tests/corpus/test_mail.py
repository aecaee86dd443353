"""EML messages."""

from __future__ import annotations

from email.message import EmailMessage
from pathlib import Path

import pytest
from corpus_samples import picture

from corpus.parsed import ParseOptions, Unreadable
from corpus.parsers.mail import attachments, parse_eml

OPTIONS = ParseOptions()


def message() -> EmailMessage:
    mail = EmailMessage()
    mail["Subject"] = "Tächo reads low"
    mail["From"] = "Mara <mara@aurora.example>"
    mail["To"] = "tomas@aurora.example"
    mail.set_content(
        "Hello Tomas,\n\nthe revision loses one edge in each window.\n\n"
        "> The fan reports 30 rpm too little.\n> Is it the chip?\n"
    )
    return mail


def test_subject_quotes_and_attachments(tmp_path: Path) -> None:
    mail = message()
    mail.add_attachment("a,b\n1,2\n", subtype="csv", filename="log.csv")
    mail.add_attachment(picture(), maintype="image", subtype="png", filename="scope.png")
    mail.add_attachment(b"MZ\x00", maintype="application", subtype="x-dosexec", filename="run.exe")
    path = tmp_path / "a.eml"
    path.write_bytes(mail.as_bytes())
    parsed = parse_eml(path, OPTIONS)
    assert parsed.title == "Tächo reads low"
    assert [(e.category, e.metadata.get("quoted", "")) for e in parsed.elements] == [
        ("Title", ""),
        ("UncategorizedText", ""),
        ("NarrativeText", ""),
        ("NarrativeText", "yes"),
    ]
    assert parsed.elements[3].text == "The fan reports 30 rpm too little. Is it the chip?"
    assert [(name, len(data or b"")) for name, data in attachments(path, "eml")] == [
        ("log.csv", 8),
        ("scope.png", len(picture())),
        ("run.exe", 3),
    ]
    assert parsed.metadata["from"] == "Mara <mara@aurora.example>"
    assert "run.exe (application/x-dosexec, 3 bytes)" in parsed.metadata["attachments"]


def test_the_html_body_is_preferred(tmp_path: Path) -> None:
    mail = message()
    mail.add_alternative("<p>The <b>marked</b> text is read here.</p>", subtype="html")
    path = tmp_path / "a.eml"
    path.write_bytes(mail.as_bytes())
    assert [e.text for e in parse_eml(path, OPTIONS).elements][1:] == [
        "The marked text is read here."
    ]


def test_unknown_charsets_and_broken_headers(tmp_path: Path) -> None:
    path = tmp_path / "a.eml"
    path.write_bytes(
        b"Subject: =?nonsense?q?x?=\nFrom: <<>>@@\nContent-Type: text/plain; charset=klingon\n\n"
        b"The text is there all the same.\n"
    )
    assert parse_eml(path, OPTIONS).elements[-1].text == "The text is there all the same."


def test_a_real_message_with_wrong_encodings(shared_data: Path) -> None:
    folder = shared_data / "nasty" / "office_edge"
    path = folder / "unstructured__email-replace-mime-encodings-error-2.eml"
    parsed = parse_eml(path, OPTIONS)
    assert parsed.title == "RE: Random Expo Expo 2023"
    assert sum(element.image is not None for element in parsed.elements) == 1


def test_an_empty_file_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(b"")
    with pytest.raises(Unreadable) as caught:
        parse_eml(tmp_path / "a.eml", OPTIONS)
    assert caught.value.reason == "empty"

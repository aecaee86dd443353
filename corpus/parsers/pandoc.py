"""Markup that pandoc reads (reStructuredText, AsciiDoc, ODT, RTF, Org, EPUB), by way of HTML.

pandoc runs in its sandbox: it reads the one file, no others and no network, within limits of time
and memory. Pictures inside ODT and EPUB containers come along as data URIs. pandoc is the program
that the package pypandoc-binary carries, or the one on PATH.
AsciiDoc conditionals, includes and comments are taken out first: pandoc does not know them all.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from functools import partial
from pathlib import Path
from typing import Final

from corpus.parsed import ParsedDocument, ParseOptions, Unreadable
from corpus.parsers import characters, containers
from corpus.parsers.markup import read_html

_TIMEOUT_S: Final = 300
_HEAP: Final = "-M2G"
_MAX_HTML_CHARS: Final = 512 * 1024**2
_ZIPPED: Final = frozenset({"odt", "epub"})
_ADOC_COMMENT: Final = re.compile(r"^////+\n.*?^////+$|^//(?!/)[^\n]*$", re.MULTILINE | re.DOTALL)
_ADOC_DIRECTIVE: Final = re.compile(
    r"^(?:ifdef|ifndef|ifeval|endif|include|toc|:!?[\w-]+!?:)(?:::?.*|\s.*|)$", re.MULTILINE
)


def parse(path: Path, options: ParseOptions, *, kind: str, reader: str) -> ParsedDocument:
    """A document of format `kind`, read by pandoc's reader of that name. Raises `Unreadable`."""
    if kind in _ZIPPED:
        containers.check(path)
        data = path.read_bytes()
    else:
        text = characters.read_text(path)
        data = (_plain_asciidoc(text) if kind == "adoc" else text).encode("utf-8")
    converted = _run(data, reader)
    return read_html(converted, options, kind=kind, parser=f"pandoc {_version()}")


def _run(data: bytes, reader: str) -> str:
    command = [_program(), "--sandbox", f"--from={reader}", "--to=html5", "--embed-resources"]
    command += ["--wrap=none", "--quiet", "+RTS", _HEAP, "-RTS"]
    try:
        done = subprocess.run(
            command, input=data, capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        detail = f"pandoc took longer than {_TIMEOUT_S} s"
        raise Unreadable("timeout", detail, stage="parse") from error
    if done.returncode == 251:  # GHC's exit code for an exhausted heap
        raise Unreadable("out_of_memory", "pandoc reached 2 GB", stage="parse")
    if done.returncode != 0:
        detail = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise Unreadable("syntax", f"pandoc: {detail}", stage="parse")
    if len(done.stdout) > _MAX_HTML_CHARS:
        raise Unreadable("too_large", f"{len(done.stdout)} bytes after conversion", stage="parse")
    return characters.clean(done.stdout.decode("utf-8", "replace"))


def _program() -> str:
    try:
        import pypandoc

        return str(pypandoc.get_pandoc_path())
    except (ImportError, OSError):
        found = shutil.which("pandoc")
    if found is None:
        raise Unreadable("needs_tool", "pandoc is missing: pip install pypandoc-binary")
    return found


def _version() -> str:
    shown = subprocess.run(
        [_program(), "--version"], capture_output=True, text=True, timeout=60, check=True
    )
    return shown.stdout.split("\n", 1)[0].removeprefix("pandoc").strip()


def _plain_asciidoc(text: str) -> str:
    text = _ADOC_COMMENT.sub("", text)
    return _ADOC_DIRECTIVE.sub("", text) + "\n"


FORMATS: Final = {
    kind: partial(parse, kind=kind, reader=reader)
    for kind, reader in {
        "rst": "rst",
        "adoc": "asciidoc",
        "odt": "odt",
        "rtf": "rtf",
        "org": "org",
        "epub": "epub",
    }.items()
}

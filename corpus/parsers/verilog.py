"""Verilog and SystemVerilog source through slang: one CodeSnippet per design element.

Modules and interfaces carry a `ParsedModule`; packages, classes, typedefs and the like are plain
CodeSnippets with their kind in the metadata; file-level comments that describe something become
NarrativeText. A module's source comes with the file's directives that it needs.

Not covered: include files are not read (their names are in the metadata), so a macro defined in
one is unknown here, and the module that uses it is kept with a fault. A module with a syntax error
is kept as plain code, with a fault; a file with nothing sound in it is `Unreadable("syntax")`.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from corpus.parsed import (
    Fault,
    ParsedDocument,
    ParsedElement,
    ParsedModule,
    ParseOptions,
    Unreadable,
)
from corpus.parsers import characters, documents, verilog_modules
from corpus.parsers.unstructured_setup import version
from corpus.parsers.verilog_comments import Comment, Comments, describe, licence
from corpus.parsers.verilog_modules import Source

_INCLUDE: Final = re.compile(rb'`include[ \t]+["<]([^">\n]+)[">]')
_MACRO_USE: Final = re.compile(r"`([A-Za-z_]\w*)")
_STICKY: Final = re.compile(rb"^[ \t]*`(timescale|default_nettype)[^\n]*", re.MULTILINE)
_SV_WORDS: Final = re.compile(
    rb"\b(logic|always_(?:ff|comb|latch)|interface|package|import|typedef|enum|struct|bit|byte|"
    rb"unique|priority|modport|class|assert\s+property)\b"
)
_UNKNOWN_MACRO: Final = "UnknownDirective"
_MIN_WORDS: Final = 4


class _Parsed(NamedTuple):
    """slang's view of a file."""

    source: Source
    members: list[Any]
    bodies: dict[str, Any]  # module name -> elaborated body
    macros: dict[str, str]  # active macro -> its `define
    errors: list[tuple[int, str, str]]  # byte offset, code, message
    owners: tuple[Any, ...]  # slang objects that the others point into; freeing them crashes


def parse_verilog(path: Path, options: ParseOptions) -> ParsedDocument:
    """A .v or .sv file. Raises `Unreadable`."""
    data = characters.read_text(path).encode("utf-8")
    parsed = _parse(data)
    faults = _faults(parsed)
    elements = _elements(parsed, _language(path, data))
    if parsed.errors and all(
        e.metadata.get("kind", "directives") == "directives" for e in elements
    ):
        offset, _, message = parsed.errors[0]
        line = parsed.source.comments.line_of(offset)
        raise Unreadable("syntax", f"line {line}: {message}", stage="parse")
    document = documents.build(
        "verilog",
        version("pyslang"),
        elements,
        title=", ".join(e.module.name for e in elements if e.module)[:200],
        metadata={"includes": " ".join(_includes(parsed.source))},
        faults=faults,
    )
    return replace(document, licence=licence(parsed.source.comments.all))


def _parse(data: bytes) -> _Parsed:
    """As SystemVerilog; what fails as that is tried as Verilog-2005, which has fewer keywords."""
    from pyslang import LanguageVersion

    parsed = _parse_as(data, None)
    if parsed.errors:
        older = _parse_as(data, LanguageVersion.v1364_2005)
        if len(older.errors) < len(parsed.errors):
            return older
    return parsed


def _parse_as(data: bytes, version: Any | None) -> _Parsed:
    import pyslang
    from pyslang import parsing, syntax

    options = pyslang.Bag()
    if version is not None:
        options.lexerOptions = _with_version(parsing.LexerOptions(), version)
        options.preprocessorOptions = _with_version(parsing.PreprocessorOptions(), version)
        options.parserOptions = _with_version(parsing.ParserOptions(), version)
    manager = pyslang.SourceManager()
    manager.setDisableLocalIncludes(True)
    # Blanks instead of includes keep every offset as it is in the file.
    without_includes = _INCLUDE.sub(lambda match: b" " * len(match[0]), data)
    tree = syntax.SyntaxTree.fromFileInMemory(
        without_includes.decode("utf-8"), manager, "source", "", options
    )
    root: Any = tree.root
    members = list(root.members)
    names = {m.header.name.valueText for m in members if _is_module(m)}
    compilation = _elaborate(tree, names, options, version)
    return _Parsed(
        Source(data, manager, Comments(data)),
        members,
        {top.name: top.body for top in compilation.getRoot().topInstances},
        _macros(members),
        _errors(tree, manager, pyslang),
        (manager, options, tree, compilation),
    )


def _with_version(options: Any, version: Any) -> Any:
    options.languageVersion = version
    return options


def _macros(members: list[Any]) -> dict[str, str]:
    """Macros defined between the members, in branches that are active, as written."""
    from pyslang.syntax import SyntaxKind

    found = {}
    for member in members:
        for trivia in member.getFirstToken().trivia:
            directive = trivia.syntax()
            if directive is not None and directive.kind == SyntaxKind.DefineDirective:
                found[directive.name.valueText] = str(directive).strip()
    return found


def _elaborate(tree: Any, names: set[str], options: Any, version: Any | None) -> Any:
    """Each module elaborated on its own with default parameters; only headers are looked at."""
    from pyslang import ast

    settings = ast.CompilationOptions()
    if version is not None:
        settings.languageVersion = version
    settings.topModules = names
    settings.maxInstanceDepth = 16
    settings.maxGenerateSteps = 10_000
    options.compilationOptions = settings
    compilation = ast.Compilation(options)
    compilation.addSyntaxTree(tree)
    return compilation


def _errors(tree: Any, manager: Any, pyslang: Any) -> list[tuple[int, str, str]]:
    engine = pyslang.DiagnosticEngine(manager)
    found = []
    for diagnostic in tree.diagnostics:
        if diagnostic.isError():
            place = manager.getFullyExpandedLoc(diagnostic.location)
            found.append((place.offset, _code(diagnostic), engine.formatMessage(diagnostic)))
    return sorted(found)


def _code(diagnostic: Any) -> str:
    match = re.search(r"(\w+)\)?>?$", str(diagnostic.code))
    return match[1] if match else ""


def _elements(parsed: _Parsed, language: str) -> list[ParsedElement]:
    source = parsed.source
    elements: list[ParsedElement] = []
    position = 0
    for member in parsed.members:
        start, end = source.span(member)
        groups = source.comments.groups(position, start)
        elements.extend(_narrative(groups))
        elements.append(_member(parsed, member, groups, language))
        position = end
    elements.extend(_narrative(source.comments.groups(position, len(source.data))))
    if not parsed.members:
        text = source.data.decode("utf-8").strip()
        elements.append(ParsedElement("CodeSnippet", text, metadata={"kind": "directives"}))
    return elements


def _member(
    parsed: _Parsed, member: Any, above: list[list[Comment]], language: str
) -> ParsedElement:
    source = parsed.source
    start, end = source.span(member)
    text = source.data[start:end].decode("utf-8", "replace")
    broken = [code for offset, code, _ in parsed.errors if start <= offset <= end]
    kind = member.kind.name.removesuffix("Declaration").lower()
    # An unknown macro mostly causes more errors behind it, and says nothing about the module.
    is_broken = bool(broken) and _UNKNOWN_MACRO not in broken
    if is_broken or not _is_module(member):
        metadata = {"syntax_error": "yes"} if is_broken else {"kind": kind}
        return ParsedElement("CodeSnippet", text, metadata=metadata)
    name = member.header.name.valueText
    body = parsed.bodies.get(name)
    module = ParsedModule(
        name=name,
        language=language,
        source=_with_directives(parsed, start, text),
        comment=_header_comment(source, member, above),
        ports=verilog_modules.ports(member, body, source),
        parameters=verilog_modules.parameters(member, body, source),
        instances=verilog_modules.instances(member, source),
        line_start=source.comments.line_of(start),
        line_end=source.comments.line_of(max(start, end - 1)),
    )
    return ParsedElement("CodeSnippet", text, metadata={"kind": kind, "name": name}, module=module)


def _with_directives(parsed: _Parsed, start: int, text: str) -> str:
    """`text` after the `timescale, `default_nettype and macros that hold for it."""
    sticky = {
        m[1]: m[0].strip().decode("utf-8") for m in _STICKY.finditer(parsed.source.data[:start])
    }
    lines = [sticky[name] for name in sorted(sticky, reverse=True)]
    needed: list[str] = []
    waiting = _MACRO_USE.findall(text)
    while waiting:
        name = waiting.pop(0)
        if name in parsed.macros and name not in needed:
            needed.append(name)
            waiting.extend(_MACRO_USE.findall(parsed.macros[name]))
    lines.extend(parsed.macros[name] for name in sorted(needed))
    return "\n".join([*lines, text]) + "\n"


def _header_comment(source: Source, member: Any, above: list[list[Comment]]) -> str:
    """The description right above the module, at the top of the file, or first inside it."""
    start, end = source.span(member)
    header_end = source.span(member.header)[1]
    first = next(iter(member.members), None)
    inside = source.span(first)[0] if first is not None else end
    beside = [g for g in above[-1:] if not source.data[g[-1].end : start].strip()]
    top = [g for g in above[:1] if not source.data[: g[0].start].strip()]
    for group in [*beside, *top, *source.comments.groups(header_end, inside)]:
        text = describe(group)
        if _says_something(text):
            return text
    return ""


def _narrative(groups: list[list[Comment]]) -> list[ParsedElement]:
    texts = (describe(group) for group in groups)
    return [ParsedElement("NarrativeText", text) for text in texts if _says_something(text)]


def _says_something(text: str) -> bool:
    return len(re.findall(r"[A-Za-z]{2,}", text)) >= _MIN_WORDS


def _includes(source: Source) -> list[str]:
    """Names of the include files, those in comments aside."""
    comments = source.comments.all
    named = (
        match[1].decode("utf-8", "replace")
        for match in _INCLUDE.finditer(source.data)
        if not any(comment.start <= match.start() < comment.end for comment in comments)
    )
    return sorted(set(named))


def _faults(parsed: _Parsed) -> list[Fault]:
    """One fault per kind of error, with the first one's line."""
    faults: dict[str, Fault] = {}
    for offset, code, message in sorted(parsed.errors, key=lambda e: e[1] != _UNKNOWN_MACRO):
        if faults and code != _UNKNOWN_MACRO and "undefined_macro" in faults:
            break
        reason = "undefined_macro" if code == _UNKNOWN_MACRO else "syntax"
        line = parsed.source.comments.line_of(offset)
        faults.setdefault(reason, Fault(1, "parse", reason, f"line {line}: {message}"))
    return list(faults.values())


def _language(path: Path, data: bytes) -> str:
    """By the name's ending; without one that says it, by keywords."""
    if path.suffix.lower() in (".v", ".vh"):
        return "verilog"
    if path.suffix.lower() in (".sv", ".svh") or _SV_WORDS.search(data):
        return "systemverilog"
    return "verilog"


def _is_module(member: Any) -> bool:
    from pyslang.syntax import SyntaxKind

    return member.kind in (SyntaxKind.ModuleDeclaration, SyntaxKind.InterfaceDeclaration)


FORMATS: Final = {"verilog": parse_verilog, "systemverilog": parse_verilog}

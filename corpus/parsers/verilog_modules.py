"""Modules of a slang syntax tree -> `ParsedModule`: ports, parameters and instances.

Names, types and values are as written; widths are elaborated with default parameters.
`of_declaration` comments: see `verilog_comments`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import Any, NamedTuple

from corpus.parsed import ParsedInstance, ParsedParameter, ParsedPort
from corpus.parsers.verilog_comments import Comments

_DIRECTIONS = {"In": "input", "Out": "output", "InOut": "inout", "Ref": "ref"}


class Source(NamedTuple):
    """A source text with what is needed to look things up in it."""

    data: bytes
    manager: Any  # pyslang.SourceManager
    comments: Comments

    def span(self, node: Any) -> tuple[int, int]:
        """Byte offsets of a node or token; of the macro call when it came out of a macro."""
        place = node.range if hasattr(node, "range") else node.sourceRange
        start = self.manager.getFullyExpandedLoc(place.start)
        end = self.manager.getFullyExpandedLoc(place.end)
        return start.offset, max(end.offset, start.offset)

    def text(self, node: Any) -> str:
        """The node as written, on one line, without comments."""
        if node is None:
            return ""
        start, end = self.span(node)
        pieces = []
        for comment in self.comments.between(start, end):
            pieces.append(self.data[start : comment.start])
            start = comment.end
        written = b" ".join([*pieces, self.data[start:end]])
        return " ".join(written.decode("utf-8", "replace").split())


def ports(module: Any, body: Any | None, source: Source) -> tuple[ParsedPort, ...]:
    """Ports in the order of the header. `body` is the elaborated instance body, if there is one."""
    written = list(_written_ports(module, source))
    symbols = {port.name: port for port in body.portList} if body is not None else {}
    starts = sorted(start for _, _, _, start, _ in written)
    found = []
    for name, direction, kind, start, end in written:
        symbol = symbols.get(name)
        found.append(
            ParsedPort(
                name=name,
                direction=_direction(symbol) or direction or "inout",
                width=_width(symbol),
                type=kind,
                comment=source.comments.of_declaration(start, end, _next(starts, end, source)),
                line=source.comments.line_of(start),
            )
        )
    return tuple(found)


def parameters(module: Any, body: Any | None, source: Source) -> tuple[ParsedParameter, ...]:
    """Parameters of the header, then those of the body, in order."""
    local = {symbol.name: symbol.isLocalParam for symbol in body.parameters} if body else {}
    found: list[ParsedParameter] = []
    declarations = list(_parameter_declarations(module))
    declarators = [(d, keyword) for keyword, declared in declarations for d in declared]
    starts = sorted(source.span(d.name)[0] for d, _ in declarators)
    for declarator, keyword in declarators:
        start, end = source.span(declarator)
        value = getattr(declarator, "initializer", None) or getattr(declarator, "assignment", None)
        name = declarator.name.valueText
        found.append(
            ParsedParameter(
                name=name,
                value=source.text(value).lstrip("= "),
                is_local=local.get(name, keyword == "localparam"),
                comment=source.comments.of_declaration(start, end, _next(starts, end, source)),
                line=source.comments.line_of(start),
            )
        )
    return tuple(found)


def instances(module: Any, source: Source) -> tuple[ParsedInstance, ...]:
    """Instantiations anywhere in the module, generate blocks included, in order."""
    from pyslang.syntax import SyntaxKind

    found: list[ParsedInstance] = []

    def collect(node: Any) -> None:
        if getattr(node, "kind", None) != SyntaxKind.HierarchyInstantiation:
            return
        for instance in _nodes(node.instances):
            name = instance.decl.name if instance.decl is not None else None
            line = source.comments.line_of(source.span(name or node.type)[0])
            found.append(ParsedInstance(node.type.valueText, name.valueText if name else "", line))

    module.visit(collect)
    return tuple(found)


def _next(starts: list[int], end: int, source: Source) -> int:
    """Where the next declaration starts: a comment behind that belongs to it."""
    index = bisect_left(starts, end)
    return starts[index] if index < len(starts) else len(source.data)


def _written_ports(module: Any, source: Source) -> Iterator[tuple[str, str, str, int, int]]:
    """(name, direction, type, start, end) of each port declaration."""
    from pyslang.syntax import SyntaxKind

    header_ports = module.header.ports
    if header_ports is None:
        return
    if header_ports.kind == SyntaxKind.AnsiPortList:
        yield from _ansi_ports(header_ports, source)
        return
    declared = {}
    for member in module.members:
        if member.kind == SyntaxKind.PortDeclaration:
            kind = _type(member.header, source)
            for declarator in _nodes(member.declarators):
                start, end = source.span(declarator)
                entry = (_header_direction(member.header), kind + _dimensions(declarator, source))
                declared[declarator.name.valueText] = (*entry, start, end)
    for port in _nodes(getattr(header_ports, "ports", ())):
        expression = getattr(port, "expr", None)
        name_token = getattr(expression, "name", None) or getattr(port, "name", None)
        if name_token is None:
            continue
        name = name_token.valueText
        yield (name, *declared.get(name, ("", "", *source.span(port))))


def _ansi_ports(ports: Any, source: Source) -> Iterator[tuple[str, str, str, int, int]]:
    from pyslang.syntax import SyntaxKind

    direction, kind = "", ""
    for port in _nodes(ports.ports):
        start, end = source.span(port)
        if port.kind == SyntaxKind.ImplicitAnsiPort:
            written_direction = _header_direction(port.header)
            written_kind = _type(port.header, source)
            # A port without direction and type takes both from the one before it.
            if written_direction or written_kind:
                direction, kind = written_direction or direction, written_kind
            dimensions = _dimensions(port.declarator, source)
            yield port.declarator.name.valueText, direction, kind + dimensions, start, end
        elif port.kind == SyntaxKind.ExplicitAnsiPort:
            yield port.name.valueText, port.direction.valueText, "", start, end


def _header_direction(header: Any) -> str:
    from pyslang.syntax import SyntaxKind

    if header.kind == SyntaxKind.InterfacePortHeader:
        return "interface"
    token = getattr(header, "direction", None)
    return token.valueText if token else ""


def _type(header: Any, source: Source) -> str:
    """Net type, `var` and data type as written; interface and modport for interface ports."""
    from pyslang.syntax import SyntaxKind

    if header.kind == SyntaxKind.InterfacePortHeader:
        return source.text(header)
    keyword = getattr(header, "netType", None) or getattr(header, "varKeyword", None)
    parts = [keyword.valueText if keyword else "", source.text(getattr(header, "dataType", None))]
    return " ".join(part for part in parts if part)


def _dimensions(declarator: Any, source: Source) -> str:
    written = " ".join(source.text(dimension) for dimension in _nodes(declarator.dimensions))
    return f" {written}" if written else ""


def _direction(symbol: Any | None) -> str:
    direction = getattr(symbol, "direction", None)
    if direction is None:
        return "interface" if symbol is not None else ""
    return _DIRECTIONS.get(direction.name, "")


def _width(symbol: Any | None) -> int:
    kind = getattr(symbol, "type", None)
    if kind is None or kind.isError or not kind.isIntegral:
        return 0
    return int(kind.bitWidth)


def _parameter_declarations(module: Any) -> Iterator[tuple[str, list[Any]]]:
    """(keyword, declarators) of each declaration in the header and at the top of the body."""
    from pyslang.syntax import SyntaxKind

    declarations: list[Any] = []
    if module.header.parameters is not None:
        declarations.extend(_nodes(module.header.parameters.declarations))
    for member in module.members:
        if member.kind == SyntaxKind.ParameterDeclarationStatement:
            declarations.append(member.parameter)
    keyword = "parameter"
    for declaration in declarations:
        token = getattr(declaration, "keyword", None)
        keyword = token.valueText if token and token.valueText else keyword
        yield keyword, list(_nodes(declaration.declarators))


def _nodes(separated: Any) -> Iterator[Any]:
    """The nodes of a separated list, without its commas."""
    return (item for item in separated if hasattr(item, "sourceRange"))

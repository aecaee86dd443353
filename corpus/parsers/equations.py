"""Office equations (OMML) as one line of text: `(a+b)/(2c)`, `x_1^2`, `sqrt(x)`, `sum_(i=1)^n`."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

_M: Final = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_SYMBOLS: Final = {"∑": "sum", "∏": "prod", "∫": "int", "⋃": "union", "⋂": "intersection"}

Element: TypeAlias = Any  # an lxml element


def linear_text(equation: Element) -> str:
    """Text of an `m:oMath` or `m:oMathPara` element."""
    return " ".join(_children(equation).split())


def _children(node: Element | None) -> str:
    return "" if node is None else "".join(_text(child) for child in node)


def _text(node: Element) -> str:
    if not isinstance(node.tag, str) or not node.tag.startswith(_M):
        return ""
    name = node.tag[len(_M) :]
    if name == "t":
        return node.text or ""
    if name.endswith("Pr"):
        return ""
    part = {child.tag[len(_M) :]: child for child in node if isinstance(child.tag, str)}
    if name == "f":
        return f"{_group(part.get('num'))}/{_group(part.get('den'))}"
    if name in ("sSub", "sSup", "sSubSup", "sPre"):
        return _group(part.get("e"), _scripts(part))
    if name == "rad":
        degree = _children(part.get("deg"))
        return (
            f"root({degree}, {_children(part.get('e'))})"
            if degree
            else (f"sqrt({_children(part.get('e'))})")
        )
    if name == "nary":
        return f"{_operator(node)}{_scripts(part)} {_children(part.get('e'))}"
    if name == "d":
        opening, closing = _brackets(node)
        inner = ", ".join(_children(child) for child in node.iterchildren(f"{_M}e"))
        return f"{opening}{inner}{closing}"
    if name == "func":
        return f"{_children(part.get('fName'))} {_group(part.get('e'))}"
    if name in ("m", "eqArr"):
        rows = node.iterchildren(f"{_M}mr", f"{_M}e")
        return "[" + "; ".join(_row(row) for row in rows) + "]"
    if name in ("limLow", "limUpp"):
        mark = "_" if name == "limLow" else "^"
        return f"{_children(part.get('e'))}{mark}{_group(part.get('lim'))}"
    return _children(node)


def _row(row: Element) -> str:
    if row.tag == f"{_M}mr":
        return ", ".join(_children(cell) for cell in row.iterchildren(f"{_M}e"))
    return _children(row)


def _group(node: Element | None, scripts: str = "") -> str:
    """A part in brackets where more than one symbol needs them."""
    text = _children(node).strip()
    is_single = text.isalnum() or text.replace(".", "").isdigit() or text.startswith("(")
    return (text if is_single or not text else f"({text})") + scripts


def _scripts(part: dict[str, Element]) -> str:
    below, above = _group(part.get("sub")), _group(part.get("sup"))
    return (f"_{below}" if below else "") + (f"^{above}" if above else "")


def _operator(node: Element) -> str:
    mark = node.find(f"{_M}naryPr/{_M}chr")
    symbol = mark.get(f"{_M}val") if mark is not None else "∫"
    return _SYMBOLS.get(symbol or "∫", symbol or "")


def _brackets(node: Element) -> tuple[str, str]:
    opening = node.find(f"{_M}dPr/{_M}begChr")
    closing = node.find(f"{_M}dPr/{_M}endChr")
    return (
        "(" if opening is None else opening.get(f"{_M}val") or "",
        ")" if closing is None else closing.get(f"{_M}val") or "",
    )

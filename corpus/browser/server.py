"""The browser served on this machine: a Starlette application over a `Library`.

    /                              the page; everything else is loaded by its script
    /app/<file>                    style and scripts
    /corpus.json                   overview
    /documents.json /quarantine.json /search.json /duplicates.json    lists, paged
    /data/<doc_id>/<piece>.json    `corpus.browser.pieces`
    /data/<doc_id>/page-<p>.png    page image;   /data/<doc_id>/figure-<id>   picture of a figure

Documents are hostile: texts travel as JSON and are set as text, pictures as known raster types or
plain bytes, under a policy that runs no script but ours. Only the names that the server was
started under are answered, so that no web page can reach it by a name of its own. It reads only,
and asks for no password: whoever reaches the port sees the corpus.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from corpus.browser import listing, page
from corpus.browser.library import Library, Shown
from corpus.browser.listing import DocumentQuery
from corpus.browser.pieces import DOC_ID, ROW_ID, NotThereError, to_json
from corpus.browser.published import media_type
from workspace.errors import DsmError, UserError

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_FRESH: Final = {"Cache-Control": "no-cache"}
_ASSET_TYPES: Final = {
    ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml",
}  # fmt: skip
_NUMBER: Final = re.compile(r"\d{1,9}")

Answer = Callable[[Shown, Request], Any]


def make_app(folder: Path, cache: Path, hosts: list[str]) -> Starlette:
    """The application over the corpus in `folder`; `hosts` are the names that it answers to."""
    library = Library(folder, cache)

    def json_route(path: str, answer: Answer) -> Route:
        def respond(request: Request) -> Response:
            return _respond(library, request, answer)

        return Route(path, respond)

    def show_page(request: Request) -> Response:
        overview = library.current().overview
        return HTMLResponse(page.served(overview["name"]), headers={**HEADERS, **_FRESH})

    def page_picture(request: Request) -> Response:
        return _picture(library, request, "page", _whole(request.path_params["page"], "page"))

    def figure_picture(request: Request) -> Response:
        image_id = request.path_params["image_id"]
        if not ROW_ID.fullmatch(image_id):
            raise NotThereError(f"image {image_id!r}: an id has 32 hex digits")
        return _picture(library, request, "figure", image_id)

    return Starlette(
        routes=[
            Route("/", show_page),
            Route("/app/{file}", _asset),
            json_route("/corpus.json", lambda shown, request: shown.overview),
            json_route("/duplicates.json", _duplicates),
            json_route("/documents.json", _documents),
            json_route("/quarantine.json", _quarantine),
            json_route("/search.json", _search),
            json_route("/data/{doc_id}/{name}.json", _piece),
            Route("/data/{doc_id}/page-{page}.png", page_picture),
            Route("/data/{doc_id}/figure-{image_id}", figure_picture),
        ],
        middleware=[
            Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False),
        ],
        exception_handlers={
            NotThereError: _refuse(404),
            UserError: _refuse(400),
            DsmError: _refuse(500),
            HTTPException: _not_found,
        },
    )


def _respond(library: Library, request: Request, answer: Answer) -> Response:
    shown = library.current()
    return _tagged(shown, request, lambda: (to_json(answer(shown, request)), "application/json"))


def _tagged(
    shown: Shown, request: Request, content: Callable[[], tuple[str | bytes, str]]
) -> Response:
    """The content, or "not modified": everything is a function of the manifest and the address."""
    headers = {**HEADERS, **_FRESH, "ETag": f'W/"{shown.corpus.stamp}"'}
    if request.headers.get("if-none-match") == headers["ETag"]:
        return Response(status_code=304, headers=headers)
    body, kind = content()
    return Response(body, media_type=kind, headers=headers)


def _documents(shown: Shown, request: Request) -> Any:
    values = request.query_params
    query = DocumentQuery(
        sort=values.get("sort", "name"),
        descending=values.get("descending") == "1",
        format=values.get("format"),
        status=values.get("status"),
        language=values.get("language"),
        licence=values.get("licence"),
        text=values.get("text", ""),
        page=_whole(values.get("page", "1"), "page"),
    )
    with shown.index() as index:
        return listing.list_documents(index, query)


def _quarantine(shown: Shown, request: Request) -> Any:
    with shown.index() as index:
        return listing.list_quarantine(index, _whole(request.query_params.get("page", "1"), "page"))


def _duplicates(shown: Shown, request: Request) -> Any:
    values = request.query_params
    with shown.index() as index:
        page_number = _whole(values.get("page", "1"), "page")
        return listing.list_duplicates(index, values.get("kind", ""), page_number)


def _search(shown: Shown, request: Request) -> Any:
    values = request.query_params
    doc_id = values.get("doc_id", "")
    if doc_id and not DOC_ID.fullmatch(doc_id):
        raise UserError("doc_id: an id has 64 hex digits")
    with shown.index() as index:
        page_number = _whole(values.get("page", "1"), "page")
        return listing.search(index, values.get("text", ""), page_number, doc_id)


def _piece(shown: Shown, request: Request) -> Any:
    return shown.pieces.piece(request.path_params["doc_id"], request.path_params["name"])


def _picture(library: Library, request: Request, kind: str, name: Any) -> Response:
    doc_id = request.path_params["doc_id"]
    if not DOC_ID.fullmatch(doc_id):
        raise NotThereError(f"document {doc_id!r}: an id has 64 hex digits")
    shown = library.current()
    pieces = shown.pieces
    read = pieces.page_picture if kind == "page" else pieces.figure_picture

    def content() -> tuple[bytes, str]:
        data = read(doc_id, name)
        return data, media_type(data)

    return _tagged(shown, request, content)


def _asset(request: Request) -> Response:
    name = request.path_params["file"]
    if name not in page.ASSETS:
        raise NotThereError(f"no file {name!r}")
    kind = _ASSET_TYPES[Path(name).suffix]
    return Response(page.asset(name), media_type=kind, headers={**HEADERS, **_FRESH})


def _whole(text: str, name: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise UserError(f"{name}: {text[:40]!r} is not a whole number")
    return int(text)


def _refuse(status: int) -> Callable[[Request, Exception], Response]:
    def respond(request: Request, error: Exception) -> Response:
        body = to_json({"error": str(error)})
        return Response(body, status_code=status, media_type="application/json", headers=HEADERS)

    return respond


def _not_found(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refuse(error.status_code)(request, error)

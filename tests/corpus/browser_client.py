"""Ask the corpus browser: over HTTP, in its pieces, or in an exported folder."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from browser_corpora import doc_id_of, publish_rows
from starlette.testclient import TestClient

from corpus.browser.pieces import Pieces
from corpus.browser.published import Published
from corpus.browser.server import make_app


def open_client(workspace: Path) -> TestClient:
    app = make_app(workspace / "corpus", workspace / ".cache", ["127.0.0.1"])
    return TestClient(app, base_url="http://127.0.0.1")


def ask(client: TestClient, path: str) -> Any:
    response = client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


def listed(client: TestClient) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in ask(client, "/documents.json")["rows"]}


def one_document(workspace: Path, tables: dict[str, list[dict[str, Any]]]) -> Pieces:
    document = {"doc_id": doc_id_of(1), "name": "sheet.xlsx", "metadata_json": "{}"}
    page = {"doc_id": doc_id_of(1), "page": 1}
    publish_rows(workspace, {"documents": [document], "pages": [page], **tables})
    return Pieces(Published(workspace / "corpus"))


def piece_in(folder: Path, path: str) -> Any:
    text = (folder / "data" / f"{path}.js").read_text(encoding="ascii")
    match = re.fullmatch(r"corpusPiece\((\"[^\"]+\"), (.*)\);\n", text, re.DOTALL)
    assert match and json.loads(match[1]) == path
    return json.loads(match[2])

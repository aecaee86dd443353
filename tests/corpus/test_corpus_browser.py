"""The corpus browser over HTTP shows what is in the tables, and hostile texts are inert."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from browser_corpora import (
    HOSTILE_NAME,
    IMAGE,
    SCRIPT,
    doc_id_of,
    publish_rows,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from ingest_runs import rows
from starlette.testclient import TestClient

from corpus.browser.__main__ import main
from corpus.browser.index import SORTABLE, connect, open_index
from corpus.browser.listing import DocumentQuery, documents_sql, list_documents, search
from corpus.browser.pieces import PART_CELLS, Pieces
from corpus.browser.published import Published
from corpus.browser.server import make_app
from workspace.errors import MissingInputError, UserError


@pytest.fixture(scope="module")
def workspace(hostile_workspace: Path) -> Path:
    return hostile_workspace


@pytest.fixture(scope="module")
def client(workspace: Path) -> TestClient:
    return open_client(workspace)


def open_client(workspace: Path) -> TestClient:
    app = make_app(workspace / "corpus", workspace / ".cache", ["127.0.0.1"])
    return TestClient(app, base_url="http://127.0.0.1")


def ask(client: TestClient, path: str) -> Any:
    response = client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


def listed(client: TestClient) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in ask(client, "/documents.json")["rows"]}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_runs_no_script_but_its_own_files(client: TestClient) -> None:
    response = client.get("/")
    policy = response.headers["content-security-policy"]
    assert "script-src 'self';" in policy and "default-src 'none'" in policy
    assert "unsafe" not in policy
    parser = Tags()
    parser.feed(response.text)
    scripts = [attributes for tag, attributes in parser.found if tag == "script"]
    assert scripts and all(str(script["src"]).startswith("app/") for script in scripts)
    assert not any(name.startswith("on") for _, attributes in parser.found for name in attributes)
    assert not [tag for tag, _ in parser.found if tag == "b"]  # the workspace's name is <b>W
    for script in scripts:
        assert client.get(f"/{script['src']}").headers["content-type"].startswith("text/javascript")
    assert client.get("/app/browser.css").headers["content-type"].startswith("text/css")


def test_every_file_is_listed_also_the_one_that_was_given_up(client: TestClient) -> None:
    found = listed(client)
    assert set(found) == {"manual.pdf", HOSTILE_NAME, "counter.v", "broken <b>.pdf"}
    assert found["manual.pdf"]["n_pages"] == 2 and found["manual.pdf"]["status"] == "ok"
    assert found["manual.pdf"]["cpu_s"] > 0
    assert (
        found["broken <b>.pdf"]["status"] == "quarantined" and not found["broken <b>.pdf"]["kept"]
    )
    record = ask(client, "/quarantine.json")["rows"][0]
    assert record["uri"].endswith("broken <b>.pdf") and record["reason"] == "corrupt"


@pytest.mark.parametrize(
    "path", ["/documents.json", "/quarantine.json", "/corpus.json", "/search.json?text=zebrafish"]
)
def test_lists_carry_hostile_texts_as_data(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "content-security-policy" in response.headers
    assert "<" not in response.text


def test_a_page_shows_its_elements_with_their_boxes_in_order(
    client: TestClient, workspace: Path
) -> None:
    document = listed(client)["manual.pdf"]
    address = f"/data/{document['doc_id']}"
    whole = ask(client, f"{address}/document.json")
    expected = [
        row
        for row in rows(workspace, "elements")
        if row["doc_id"] == document["doc_id"] and row["page"] == 2
    ]
    page = ask(client, f"{address}/page-2-0.json")
    assert page["total"] == whole["pages"][1]["n_elements"] == len(expected) > 3
    for shown, row in zip(page["elements"], expected, strict=True):
        assert (shown["element_id"], shown["text"]) == (row["element_id"], row["text"])
        assert shown["bbox_pt"] == row["bbox_pt"]
    by_category = {shown["category"]: shown["is"] for shown in page["elements"]}
    assert by_category["Table"] in [table["table_id"] for table in whole["tables"]]
    assert by_category["Image"] in [figure["image_id"] for figure in whole["figures"]]
    title = next(title for title in whole["outline"] if title["text"].startswith("2 Chapter"))
    assert page["elements"][title["place"][1]]["element_id"] == title["element_id"]
    assert title["place"][0] == 2


def test_pictures_are_the_bytes_of_the_tables(client: TestClient, workspace: Path) -> None:
    document = listed(client)["manual.pdf"]
    (stored,) = [
        row["image"]["bytes"]
        for row in rows(workspace, "pages")
        if row["doc_id"] == document["doc_id"] and row["page"] == 1
    ]
    response = client.get(f"/data/{document['doc_id']}/page-1.png")
    assert response.content == stored and response.headers["content-type"] == "image/png"
    again = client.get(
        f"/data/{document['doc_id']}/page-1.png",
        headers={"If-None-Match": response.headers["etag"]},
    )
    assert again.status_code == 304 and not again.content
    figure = rows(workspace, "images")[0]
    shown = client.get(f"/data/{figure['doc_id']}/figure-{figure['image_id']}")
    assert shown.content == figure["image"]["bytes"]


def test_a_table_comes_as_cells_with_their_kinds(client: TestClient) -> None:
    document = ask(client, f"/data/{listed(client)[HOSTILE_NAME]['doc_id']}/document.json")
    (table,) = document["tables"]
    piece = ask(client, f"/data/{document['doc_id']}/table-{table['table_id']}-0.json")
    texts = {(cell["row"], cell["col"]): cell["text"] for cell in piece["cells"]}
    assert texts[1, 0] == "clk_en" and texts[2, 1] == "12"
    assert SCRIPT in texts[0, 1]
    assert [kind for kind, _ in piece["kinds"]] == ["text", "number"]


def test_summaries_chunks_and_modules_are_shown(client: TestClient, workspace: Path) -> None:
    document = ask(client, f"/data/{listed(client)['counter.v']['doc_id']}/document.json")
    (module,) = document["modules"]
    piece = ask(client, f"/data/{document['doc_id']}/module-{module['module_id']}.json")
    assert [port["name"] for port in piece["ports"]] == ["clk", "rst", "value"]
    assert piece["parameters"][0]["value"] == "8" and "endmodule" in piece["source"]
    manual = ask(client, f"/data/{listed(client)['manual.pdf']['doc_id']}/document.json")
    own = [row for row in rows(workspace, "summaries") if row["doc_id"] == manual["doc_id"]]
    assert [summary["text"] for summary in manual["summaries"]] == [row["text"] for row in own]
    chunks = ask(client, f"/data/{manual['doc_id']}/chunks-0.json")["chunks"]
    assert len(chunks) == manual["n_chunks"] > 0


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/documents.json?sort=rowid;drop", 400),
        ("/documents.json?page=0", 400),
        ("/documents.json?page=-1", 400),
        ("/documents.json?page=1e9", 400),
        ("/search.json?text=a&doc_id=' OR 1=1", 400),
        ("/data/..%2f..%2fmanifest/document.json", 404),
        (f"/data/{'0' * 64}/document.json", 404),
        (f"/data/{'0' * 64}/page-1.png", 404),
        (f"/data/{'G' * 64}/document.json", 404),
        ("/app/..%2f__main__.py", 404),
        ("/app/browser.html.j2", 404),
        ("/corpus", 404),
    ],
)
def test_wrong_addresses_are_refused_with_the_reason(
    client: TestClient, path: str, status: int
) -> None:
    response = client.get(path)
    assert response.status_code == status
    assert response.json()["error"]
    assert "content-security-policy" in response.headers


@pytest.mark.parametrize(
    "piece", ["page-9-0", "page-1-9", "table-0-0", "chunks-99", "cells", "page-1"]
)
def test_pieces_that_are_not_there_are_refused(client: TestClient, piece: str) -> None:
    doc_id = listed(client)["manual.pdf"]["doc_id"]
    assert client.get(f"/data/{doc_id}/{piece}.json").status_code == 404


def test_a_web_page_cannot_reach_it_under_a_name_of_its_own(client: TestClient) -> None:
    assert client.get("/documents.json", headers={"Host": "evil.example"}).status_code == 400


def test_search_leads_to_the_page_and_the_element(client: TestClient) -> None:
    found = ask(client, "/search.json?text=register+zebraf")
    (hit,) = found["rows"]
    assert hit["name"] == HOSTILE_NAME and found["total"] == 1
    marked = [text for text, is_hit in hit["snippet"] if is_hit]
    assert marked == ["zebrafish", "register"]
    assert IMAGE in "".join(text for text, _ in hit["snippet"])
    page = ask(client, f"/data/{hit['doc_id']}/page-{hit['page']}-0.json")
    assert page["elements"][hit["place"]]["element_id"] == hit["element_id"]


def test_search_finds_words_inside_scripts_without_spaces(client: TestClient) -> None:
    (hit,) = ask(client, "/search.json?text=字の説")["rows"]
    assert "漢字の説明" in "".join(text for text, _ in hit["snippet"])
    assert ["字の説", True] in hit["snippet"]
    assert not ask(client, "/search.json?text=字漢")["rows"]


def test_of_very_many_hits_the_first_are_shown(tmp_path: Path) -> None:
    elements = [
        {"doc_id": doc_id_of(1), "element_id": f"{n:032x}", "page": 1 + n // 100, "order": n,
         "category": "ListItem", "text": "the cell", "metadata_json": "{}"}
        for n in range(10_050)
    ]  # fmt: skip
    one_document(tmp_path, {"elements": elements})
    found = ask(open_client(tmp_path), "/search.json?text=cell&page=2")
    assert found["total"] == 10_000 and found["is_more"]
    assert [(hit["page"], hit["place"]) for hit in found["rows"]] == [
        (1, n) for n in range(50, 100)
    ]


def test_search_inside_one_document(client: TestClient) -> None:
    documents = listed(client)
    inside = ask(client, f"/search.json?text=overview&doc_id={documents['manual.pdf']['doc_id']}")
    assert inside["rows"] and {row["name"] for row in inside["rows"]} == {"manual.pdf"}
    assert not ask(client, f"/search.json?text=overview&doc_id={documents['counter.v']['doc_id']}")[
        "rows"
    ]


@settings(max_examples=150)
@given(text=st.text(max_size=40))
def test_no_text_is_an_operator_of_the_search(workspace: Path, text: str) -> None:
    index = open_index(Published(workspace / "corpus"), workspace / ".cache")
    connection = connect(index)
    try:
        found = search(connection, text, 1)
    finally:
        connection.close()
    words = [word for word in text.split() if any(char.isalnum() for char in word)]
    assert found["total"] == 0 or words


def note(number: int, text: str) -> dict[str, list[dict[str, Any]]]:
    document = {"doc_id": doc_id_of(number), "name": f"{number}.txt", "metadata_json": "{}"}
    element = {"doc_id": doc_id_of(number), "page": 1, "text": text, "metadata_json": "{}"}
    return {"documents": [document], "elements": [element]}


def test_what_is_published_next_is_shown_without_a_restart(tmp_path: Path) -> None:
    publish_rows(tmp_path, note(1, "The first note of them all."))
    client = open_client(tmp_path)
    before = client.get("/documents.json")
    assert set(listed(client)) == {"1.txt"}
    publish_rows(tmp_path, note(2, "The second note, about walruses."))
    assert set(listed(client)) == {"2.txt"}
    assert client.get("/documents.json").headers["etag"] != before.headers["etag"]
    assert ask(client, "/search.json?text=walruses")["total"] == 1
    assert ask(client, "/search.json?text=first")["total"] == 0
    assert len(list((tmp_path / ".cache").glob("*.sqlite"))) == 1  # the old index is gone


def test_a_damaged_or_missing_corpus_is_said(tmp_path: Path, workspace: Path) -> None:
    with pytest.raises(MissingInputError, match="is not published yet"):
        open_client(tmp_path)
    assert main(["--workspace", str(tmp_path), "--static", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()
    copy = tmp_path / "copy"
    shutil.copytree(workspace, copy)
    client = open_client(copy)
    for path in (copy / "corpus/elements").iterdir():
        path.unlink()
    doc_id = listed(client)["manual.pdf"]["doc_id"]
    response = client.get(f"/data/{doc_id}/page-1-0.json")
    assert response.status_code == 500 and "elements" in response.json()["error"]


def test_what_a_killed_browser_left_is_swept(tmp_path: Path) -> None:
    publish_rows(tmp_path, note(1, "A note."))
    left = tmp_path / ".cache" / ".tmp-0123456789ab-corpus-browser-1-aaaa.sqlite"
    left.parent.mkdir()
    left.write_bytes(b"half an index")
    assert set(listed(open_client(tmp_path))) == {"1.txt"}
    assert not left.exists()


def test_an_empty_corpus_is_shown_as_such(tmp_path: Path) -> None:
    publish_rows(tmp_path, {})
    client = open_client(tmp_path)
    assert ask(client, "/documents.json")["total"] == 0
    assert ask(client, "/search.json?text=a")["rows"] == []
    target = tmp_path / "out"
    assert main(["--workspace", str(tmp_path), "--static", str(target)]) == 0
    assert piece_in(target, "corpus")["n_search_files"] == 0


def test_an_index_that_cannot_be_written_names_the_cure(tmp_path: Path, workspace: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="--cache"):
        open_index(Published(workspace / "corpus"), tmp_path / "file")


# ---- 50,000 documents

MANY = 50_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of a corpus with 50,000 documents."""
    workspace = tmp_path_factory.mktemp("many")
    formats = ("pdf", "docx", "html")
    documents = [
        {
            "doc_id": doc_id_of(n),
            "uri": f"/data/{n % 100}/Manual {n}.pdf",
            "name": f"Manual {n}.pdf",
            "title": f"The manual of part {n}",
            "format": formats[n % 3],
            "status": "partial" if n % 10 == 0 else "ok",
            "language": "en" if n % 2 else "de",
            "bytes": (n * 7919) % MANY,
            "n_pages": n % 97,
            "metadata_json": "{}",
        }
        for n in range(MANY)
    ]
    documents.sort(key=lambda row: str(row["doc_id"]))
    publish_rows(workspace, {"documents": documents})
    return open_index(Published(workspace / "corpus"), workspace / ".cache")


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("sort", SORTABLE)
def test_a_page_of_a_long_list_is_read_through_an_index(
    many: Path, sort: str, descending: bool
) -> None:
    connection = connect(many)
    sql, values = documents_sql(DocumentQuery(sort=sort, descending=descending, page=500))
    plan = " ".join(
        row["detail"] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", values)
    )
    assert f"USING INDEX documents_by_{sort}" in plan
    assert "TEMP B-TREE" not in plan
    connection.close()


def test_pages_of_a_long_list_follow_each_other(many: Path) -> None:
    connection = connect(many)
    seen = []
    for page in (1, 2, 1000):
        found = list_documents(connection, DocumentQuery(sort="bytes", page=page))
        assert found["total"] == MANY and len(found["rows"]) == found["page_rows"] == 50
        seen += [row["bytes"] for row in found["rows"]]
    assert seen[:100] == list(range(100)) and seen[-1] == MANY - 1
    assert not list_documents(connection, DocumentQuery(page=1001))["rows"]
    connection.close()


def test_filters_narrow_a_long_list(many: Path) -> None:
    connection = connect(many)
    query = DocumentQuery(format="pdf", status="partial", text="manual 4999")
    found = list_documents(connection, query)
    expected = {
        f"Manual {n}.pdf"
        for n in range(MANY)
        if n % 3 == 0 and n % 10 == 0 and f"manual {n}.pdf".startswith("manual 4999")
    }
    assert {row["name"] for row in found["rows"]} == expected and found["total"] == len(expected)
    connection.close()


# ---- large and odd documents


def cell(row: int, col: int, **more: Any) -> dict[str, Any]:
    return {"row": row, "col": col, "row_span": 1, "col_span": 1, "is_header": False,
            "text": f"{row}/{col}", "bbox_pt": None, **more}  # fmt: skip


def one_document(workspace: Path, tables: dict[str, list[dict[str, Any]]]) -> Pieces:
    document = {"doc_id": doc_id_of(1), "name": "sheet.xlsx", "metadata_json": "{}"}
    page = {"doc_id": doc_id_of(1), "page": 1}
    publish_rows(workspace, {"documents": [document], "pages": [page], **tables})
    return Pieces(Published(workspace / "corpus"))


def test_a_large_table_comes_in_windows_that_hold_each_cell_once(tmp_path: Path) -> None:
    cells = [cell(row, col) for row in range(3_000) for col in range(7)]
    table = {"doc_id": doc_id_of(1), "table_id": "a" * 32, "element_id": "e" * 32, "page": 1,
             "pages": [1], "n_rows": 3_000, "n_cols": 7, "cells": cells,
             "columns_json": "[]"}  # fmt: skip
    pieces = one_document(tmp_path, {"tables": [table]})
    names = [name for name in pieces.names(doc_id_of(1)) if name.startswith("table-")]
    windows = [pieces.piece(doc_id_of(1), name)["cells"] for name in names]
    assert all(0 < len(window) <= PART_CELLS for window in windows)
    assert [found["text"] for window in windows for found in window] == [c["text"] for c in cells]


def test_a_page_with_many_elements_comes_in_parts(tmp_path: Path) -> None:
    elements = [
        {"doc_id": doc_id_of(1), "element_id": f"{n:032x}", "page": 1, "order": n,
         "category": "ListItem", "text": f"item {n}", "metadata_json": "{}"}
        for n in range(1_000)
    ]  # fmt: skip
    pieces = one_document(tmp_path, {"elements": elements})
    names = [name for name in pieces.names(doc_id_of(1)) if name.startswith("page-")]
    parts = [pieces.piece(doc_id_of(1), name)["elements"] for name in names]
    assert max(map(len, parts)) <= 300
    assert [row["text"] for part in parts for row in part] == [row["text"] for row in elements]


def test_a_table_over_two_pages_says_where_it_is_on_each(tmp_path: Path) -> None:
    cells = [
        cell(0, 0, page=1, bbox_pt=[10, 700, 50, 720]),
        cell(1, 0, page=2, bbox_pt=[10, 30, 50, 50]),
        cell(2, 0, page=2, bbox_pt=[12, 50, 60, 70]),
    ]
    table = {"doc_id": doc_id_of(1), "table_id": "a" * 32, "element_id": "e" * 32, "page": 1,
             "pages": [1, 2], "n_rows": 3, "n_cols": 1, "cells": cells, "columns_json": "[]",
             "bbox_pt": [10, 700, 50, 720]}  # fmt: skip
    pieces = one_document(tmp_path, {"tables": [table]})
    (shown,) = pieces.piece(doc_id_of(1), "document")["tables"]
    assert shown["parts"] == [[1, [10, 700, 50, 720]], [2, [10, 30, 60, 70]]]


def test_duplicates_are_grouped_and_filtered_by_kind(tmp_path: Path) -> None:
    documents = [
        {"doc_id": doc_id_of(n), "name": f"n{n}.pdf", "metadata_json": "{}"} for n in (1, 2)
    ]
    documents.sort(key=lambda row: row["doc_id"])
    members = [
        {"group_id": group, "kind": kind, "n_members": 2, "doc_id": doc_id_of(n),
         "similarity": 0.98, "number_agreement": 0.5, "is_representative": n == 2}
        for group, kind in (("g1", "variant"), ("g2", "page")) for n in (1, 2)
    ]  # fmt: skip
    publish_rows(tmp_path, {"documents": documents, "duplicates": members})
    client = open_client(tmp_path)
    assert ask(client, "/corpus.json")["has_duplicates"]
    assert ask(client, "/duplicates.json")["kinds"] == {"page": 1, "variant": 1}
    found = ask(client, "/duplicates.json?kind=variant")
    (group,) = found["rows"]
    assert found["total"] == 1 and [m["name"] for m in group["members"]] == ["n2.pdf", "n1.pdf"]
    assert group["members"][0]["number_agreement"] == 0.5


# ---- the folder


@pytest.fixture(scope="module")
def exported(workspace: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("export") / "folder"
    assert main(["--workspace", str(workspace), "--static", str(target)]) == 0
    return target


def piece_in(folder: Path, path: str) -> Any:
    text = (folder / "data" / f"{path}.js").read_text(encoding="ascii")
    match = re.fullmatch(r"corpusPiece\((\"[^\"]+\"), (.*)\);\n", text, re.DOTALL)
    assert match and json.loads(match[1]) == path
    return json.loads(match[2])


def test_the_folder_holds_the_same_pieces_as_the_server(exported: Path, client: TestClient) -> None:
    for document in listed(client).values():
        folder = exported / "data" / document["doc_id"]
        assert folder.is_dir() == bool(document["kept"])
        for path in sorted(folder.glob("*.js")):
            name = path.stem
            assert piece_in(exported, f"{document['doc_id']}/{name}") == ask(
                client, f"/data/{document['doc_id']}/{name}.json"
            )
    names = {path.suffix for path in exported.rglob("*") if path.is_file()}
    assert names <= {".html", ".js", ".css", ".svg", ".png", ".json", ""}
    assert "<" not in (exported / "data/documents-0.js").read_text()


def test_a_folder_of_chosen_documents_tells_of_no_others(tmp_path: Path, workspace: Path) -> None:
    target = tmp_path / "out"
    assert main(["--workspace", str(workspace), "--static", str(target), "--include", "*.v"]) == 0
    assert [row["name"] for row in piece_in(target, "documents-0")] == ["counter.v"]
    written = "".join(
        path.read_text("utf-8", "replace") for path in (target / "data").rglob("*.js")
    )
    assert "manual.pdf" not in written and "zebrafish" not in written
    assert main(["--workspace", str(workspace), "--static", str(target), "--include", "*.pdf"]) == 0
    assert "counter.v" not in (target / "data/documents-0.js").read_text()  # written anew, whole


def test_a_folder_with_other_files_is_not_touched(
    tmp_path: Path, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious.txt").write_text("mine")
    assert main(["--workspace", str(workspace), "--static", str(tmp_path)]) == 1
    assert "other files" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious.txt"]
    target = tmp_path / "none"
    assert main(["--workspace", str(workspace), "--static", str(target), "--include", "*.zip"]) == 1
    assert not target.exists()


@pytest.mark.parametrize(
    "arguments",
    [[], ["--workspace", "w", "--serve", "70000"], ["--workspace", "w", "--serve", "x"],
     ["--workspace", "w", "--serve", "1", "--static", "s"]],
)  # fmt: skip
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2

"""The corpus browser over HTTP shows what is in the tables, and hostile texts are inert."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser_client import ask, listed, open_client
from browser_corpora import HOSTILE_NAME, SCRIPT, doc_id_of, publish_rows
from ingest_runs import rows
from starlette.testclient import TestClient


@pytest.fixture(scope="module")
def workspace(hostile_workspace: Path) -> Path:
    return hostile_workspace


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

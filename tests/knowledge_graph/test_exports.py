"""GraphML that other tools can read, and a page that hostile documents cannot break."""

from __future__ import annotations

import json
from pathlib import Path

import networkx
import pytest
from chromium import listen, open_chromium
from sample_corpus import SAMPLE, table, text, write_corpus

from knowledge_graph.build import GraphConfig, plan, process, publish
from knowledge_graph.layout import place_circles
from workspace import stage
from workspace.paths import Workspace
from workspace.script_data import embed_json
from workspace.shards import iterate_rows

HOSTILE = "</script><script>document.title='owned'</script>"


def test_graphml_holds_every_entity_and_relation(sample_graph: Workspace) -> None:
    graph = networkx.read_graphml(
        sample_graph.graph / "export/graph.graphml", force_multigraph=True
    )
    entities = {row["entity_id"]: row for row in iterate_rows(sample_graph.graph, "entities")}
    between = [row for row in iterate_rows(sample_graph.graph, "relations") if row["tail_id"]]
    assert set(graph.nodes) == set(entities)
    assert graph.number_of_edges() == len(between)
    node = next(n for n, data in graph.nodes(data=True) if data["name"] == "uart_tx.data_i")
    assert graph.nodes[node]["type"] == "port"
    assert graph.nodes[node]["facts"] == "direction = input\nwidth = 8 bits"
    assert graph.nodes[node]["pagerank"] == pytest.approx(entities[node]["pagerank"])


def test_control_characters_do_not_break_graphml(tmp_path: Path) -> None:
    rows = [["Name", "Value"], ['odd\x00name\x0b<&">', "1\ufffe2"], ["other_name", "3"]]
    workspace = write_corpus(tmp_path, {"a": [table(rows)]})
    stage.run(GraphConfig(workspace=tmp_path), plan, process, publish)
    graph = networkx.read_graphml(workspace.graph / "export/graph.graphml")
    assert graph.number_of_nodes() >= 2


def test_embedded_json_cannot_end_its_script() -> None:
    value = {"a": f"{HOSTILE} & \u2028 é"}
    embedded = embed_json(value)
    assert not set("<>&\u2028") & set(embedded)
    assert json.loads(embedded) == value


def test_the_page_says_how_much_it_shows(tmp_path: Path) -> None:
    workspace = write_corpus(tmp_path, SAMPLE)
    config = GraphConfig(workspace=tmp_path, min_mentions=1, explorer_entities=10)
    stage.run(config, plan, process, publish)
    page = (workspace.graph / "explorer.html").read_text("utf-8")
    start = page.index('id="data">') + len('id="data">')
    data = json.loads(page[start : page.index("</script>", start)])
    assert len(data["entities"]) == 10
    assert data["totals"]["entities"] > 10
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_circles_do_not_overlap_and_are_placed_alike() -> None:
    sizes = [float(3 + (7 * n) % 90) for n in range(60)]
    links = {(n, n + 1): 5.0 for n in range(59)}
    circles = place_circles(sizes, links, seed=7)
    assert circles == place_circles(sizes, links, seed=7)
    for i, a in enumerate(circles):
        for b in circles[:i]:
            assert ((a.x - b.x) ** 2 + (a.y - b.y) ** 2) ** 0.5 >= a.r + b.r - 0.5


@pytest.mark.browser
def test_walk_through_the_page_by_keyboard(tmp_path: Path) -> None:
    from playwright.sync_api import expect

    documents = {
        **SAMPLE,
        "<img src=x onerror=\"document.title='owned'\">.pdf": [
            text("NarrativeText", f"The shift register is a {HOSTILE} latch chain."),
        ],
    }
    workspace = write_corpus(tmp_path, documents)
    stage.run(GraphConfig(workspace=tmp_path, min_mentions=1), plan, process, publish)
    with open_chromium() as browser:
        page = browser.new_page()
        complaints = listen(page)
        page.goto((workspace.graph / "explorer.html").as_uri())
        expect(page.locator("svg .bubble").first).to_be_visible()
        page.keyboard.press("/")
        page.keyboard.type("shift reg")
        expect(page.locator("#list li")).to_have_count(1)
        page.keyboard.press("Enter")
        panel = page.locator("#panel")
        expect(panel.locator("h2")).to_have_text("shift register")
        expect(panel).to_contain_text("The baud rate generator drives the shift register.")
        expect(panel).to_contain_text("uart.pdf, page 1")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        expect(panel.locator("h2")).not_to_have_text("shift register")
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        expect(panel.locator("h2")).to_have_text("What these documents are about")
        assert page.title() == "Knowledge graph"
        page.go_back()
        expect(panel.locator("h2")).not_to_have_text("What these documents are about")
        page.go_forward()
        expect(panel.locator("h2")).to_have_text("What these documents are about")
        page.reload()
        expect(panel.locator("h2")).to_have_text("What these documents are about")
    assert complaints == []

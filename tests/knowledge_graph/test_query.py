"""Looking things up in a published graph."""

from __future__ import annotations

from pathlib import Path

import networkx
import pytest

from knowledge_graph.query import Graph
from workspace.errors import MissingInputError, UserError
from workspace.paths import Workspace


@pytest.fixture(scope="module")
def graph(sample_graph: Workspace) -> Graph:
    return Graph.open(sample_graph)


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("uart", "UART"),
        ("universal asynchronous receiver transmitter", "UART"),
        ("Shift Registers", "shift register"),
        ("CTRL_REG0", "CTRL_REG0"),
        ("uart_tx.clk_i", "uart_tx.clk_i"),
        ("clk_i", "uart_tx.clk_i"),
    ],
)
def test_entities_are_found_by_any_of_their_names(graph: Graph, asked: str, name: str) -> None:
    assert graph.entity(asked).name == name
    assert graph.entity(graph.entity(asked).entity_id).name == name


def test_unknown_names_are_an_error(graph: Graph) -> None:
    with pytest.raises(UserError, match="flux capacitor"):
        graph.entity("flux capacitor")


def test_neighbours_come_by_rank(graph: Graph) -> None:
    near = graph.neighbours(graph.entity("uart_tx").entity_id)
    assert {entity.name for entity in near} == {
        "baud_gen",
        "uart_tx.clk_i",
        "uart_tx.data_i",
        "uart_tx.tx_o",
        "uart_tx.DIVISOR",
    }
    assert [e.pagerank for e in near] == sorted((e.pagerank for e in near), reverse=True)


def test_mentions_of_an_entity(graph: Graph) -> None:
    found = graph.mentions(graph.entity("CTRL_REG0").entity_id)
    assert {(mention.kind, mention.page) for mention in found} == {
        ("identifier", 2),
        ("table_key", 1),
    }


def test_subgraph_holds_the_relations_among_the_reached(graph: Graph) -> None:
    seed = graph.entity("parity bit").entity_id
    one, two = graph.subgraph(seed, hops=1), graph.subgraph(seed, hops=2)
    assert isinstance(two, networkx.MultiDiGraph)
    assert {data["name"] for _, data in one.nodes(data=True)} == {"parity bit", "shift register"}
    assert "baud rate generator" in {data["name"] for _, data in two.nodes(data=True)}
    facts = {
        (one.nodes[head]["name"], data["predicate"], one.nodes[tail]["name"]): data["evidence"]
        for head, tail, data in one.edges(data=True)
    }
    evidence = facts["shift register", "has_part", "parity bit"]
    assert evidence[0].text.startswith("The shift register consists of")


def test_an_unpublished_graph_names_its_flow(tmp_path: Path) -> None:
    with pytest.raises(MissingInputError, match=r"flows\.build_graph"):
        Graph.open(Workspace(tmp_path))

"""Table queries: two programs agree on any table, and on known answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.data.generators.queries import Query, View, agree, evaluate, recompute, to_sql

POWER = View(
    ("mode", "power", "note"),
    (
        ("idle", 0.5, "it's on"),
        ("sleep", 0.1, 'a "deep" one'),
        ("active", 12.4, "x; DROP TABLE t"),
        ("boost", 30.0, "-- no"),
    ),
)


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        (Query("lookup", "power", ("active",)), 12.4),
        (Query("lookup", "note", ("idle",)), "it's on"),
        (Query("compare", "power", ("idle", "sleep")), "idle"),
        (Query("argmax", "power"), "boost"),
        (Query("argmin", "power"), "sleep"),
        (Query("count", "power", bound=0.5), 2.0),
        (Query("sum", "power", ("idle", "sleep")), 0.6),
        (Query("difference", "power", ("active", "idle")), 11.9),
        (Query("filter", "power", bound=0.3), ("active", "boost", "idle")),
    ],
)
def test_known_answers(query: Query, answer: object) -> None:
    assert evaluate(query, POWER) == pytest.approx(answer)
    assert agree(evaluate(query, POWER), recompute(query, POWER))


texts = st.text(min_size=1, max_size=12).filter(
    lambda text: "\x00" not in text and text.isprintable()
)
numbers = st.floats(-1e9, 1e9).map(lambda value: round(value, 4))


@st.composite
def views(draw: st.DrawFn) -> View:
    keys = draw(st.lists(texts, min_size=3, max_size=8, unique=True))
    labels = draw(
        st.lists(texts, min_size=2, max_size=2, unique_by=lambda text: text.upper().lower())
    )
    values = draw(st.lists(numbers, min_size=len(keys), max_size=len(keys), unique=True))
    return View(tuple(labels), tuple(zip(keys, values, strict=True)))


@settings(max_examples=150, deadline=None)
@given(views(), st.data())
def test_python_and_sqlite_agree(view: View, data: st.DataObject) -> None:
    keys = [str(key) for key in view.values(view.key)]
    two = tuple(data.draw(st.permutations(keys))[:2])
    bound = data.draw(st.sampled_from(view.numbers(view.columns[1])))
    for operation in (
        "lookup",
        "compare",
        "argmax",
        "argmin",
        "count",
        "sum",
        "difference",
        "filter",
    ):
        one = operation == "lookup"
        query = Query(operation, view.columns[1], two[:1] if one else two, bound)
        assert agree(evaluate(query, view), recompute(query, view)), to_sql(query, view)

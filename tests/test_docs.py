"""What the docs list is what the code has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from corpus.parsers.registry import PAGED, WHOLE
from workspace.paths import Workspace

DOCS = Path(__file__).resolve().parent.parent / "docs"


def section(name: str, heading: str) -> str:
    """The text below a heading of a page, up to the next one."""
    text = (DOCS / name).read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_every_format_is_listed_with_the_module_that_reads_it() -> None:
    rows = re.findall(
        r"^\| (`.+?) \|.*\| `(\w+)` \|$", section("ingest.md", "What reads which format"), re.M
    )
    listed = {name: module for names, module in rows for name in re.findall(r"`(\w+)`", names)}
    assert listed == {**WHOLE, **dict.fromkeys(PAGED, "pdf")}


def test_what_goes_through_unstructured_is_told_from_what_does_not() -> None:
    rows = re.findall(
        r"^\| .*? \| (.*) \| `(\w+)` \|$", section("ingest.md", "What reads which format"), re.M
    )
    said = {module for through, module in rows if through.startswith("unstructured")}
    parsers = DOCS.parent / "corpus" / "parsers"
    using = {
        path.stem for path in parsers.glob("*.py") if "unstructured.partition" in path.read_text()
    }
    assert said == using - {"unstructured_setup"}


def test_every_place_in_a_workspace_is_listed() -> None:
    tree = section("architecture.md", "The workspace on disk")
    where = Workspace(Path("W"))
    places = [value for name in dir(where) if isinstance(value := getattr(where, name), Path)]
    for place in places:
        for part in place.relative_to("W").parts:
            assert part in tree, f"{place} is not in docs/architecture.md"


def test_the_readme_tells_the_demo_as_it_was_measured() -> None:
    """Its *Measured* rows against the file that `benchmarks.demo` wrote."""
    text = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    measured = text.partition("\n## Measured\n")[2].partition("\n## ")[0]
    kept = json.loads((DOCS.parent / "benchmarks/results/demo_run.json").read_text())
    figures = {figure["name"]: figure for figure in kept["figures"]}
    for difference in [name for name in figures if name.endswith(": difference")]:
        if difference.startswith("Domain QA, closed book, mentions"):
            continue  # the same as its accuracy
        metric = difference.removesuffix(": difference")
        before, after = (
            figures[f"{metric}: {model}"]["value"] for model in ("dsm:1 base", "dsm:1")
        )
        interval = re.match(r"points \[(\S+), (\S+)\]", figures[difference]["unit"])
        assert interval is not None
        low, high = interval.groups()
        said = rf"{before:.1f} % → {after:.1f} %, (?:paired difference )?\{low} to \{high} points"
        assert re.search(said, measured), metric
    speed = figures["training, sft: tokens/s"]["value"]
    assert f"{speed:.0f} tokens/s on two Xeon cores in bf16" in measured
    for name in ("pages", "tables"):
        assert f"{figures[f'corpus: {name}']['value']:,} {name}" in measured

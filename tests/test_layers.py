"""Imports go one way, Prefect stays in flows/ and tasks/, every module says what it is."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

# Package -> what it may import of ours. training.cluster and the rest of training are one layer.
ALLOWED = {
    "workspace": set(),
    "corpus": {"workspace"},
    "knowledge_graph": {"corpus", "workspace"},
    "evaluation": {"knowledge_graph", "corpus", "workspace"},
    "training": {"evaluation", "knowledge_graph", "corpus", "workspace"},
    "monitoring": {"workspace"},
    "tasks": {"evaluation", "training", "knowledge_graph", "corpus", "workspace", "monitoring"},
    "flows": {
        "tasks", "evaluation", "training", "knowledge_graph", "corpus", "workspace", "monitoring",
    },
}  # fmt: skip

MODULES = sorted(path for package in ALLOWED for path in (REPOSITORY / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(REPOSITORY).as_posix()


def imported(path: Path) -> Iterator[str]:
    """Full names of the modules that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def forbidden(package: str, module: str) -> bool:
    """Whether `package` must not import `module`."""
    top = module.partition(".")[0]
    if top == "prefect":
        return package not in ("flows", "tasks")
    if top == package or top not in ALLOWED:
        return False
    if (package, top) == ("training", "evaluation"):
        # `from evaluation import verifiers` is seen as evaluation and evaluation.verifiers.
        return module != "evaluation" and not module.startswith("evaluation.verifiers")
    return top not in ALLOWED[package]


def test_there_are_modules_in_every_layer() -> None:
    assert {path.relative_to(REPOSITORY).parts[0] for path in MODULES} == set(ALLOWED)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    package = path.relative_to(REPOSITORY).parts[0]
    wrong = [module for module in imported(path) if forbidden(package, module)]
    assert not wrong, f"{name_of(path)} must not import {', '.join(wrong)}"


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("corpus", "prefect"),
        ("corpus", "knowledge_graph.schema"),
        ("workspace", "corpus.schema"),
        ("evaluation", "training.train"),
        ("training", "evaluation.score"),
        ("tasks", "flows.ingest"),
        ("knowledge_graph", "prefect.artifacts"),
    ],
)
def test_the_rule_refuses_what_it_should(package: str, module: str) -> None:
    assert forbidden(package, module)


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("training", "evaluation.verifiers.verdict"),
        ("flows", "prefect"),
        ("tasks", "training.train"),
        ("corpus", "pyarrow"),
        ("evaluation", "evaluation.results"),
    ],
)
def test_the_rule_allows_what_it_should(package: str, module: str) -> None:
    assert not forbidden(package, module)


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_every_module_has_a_docstring(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert not text.strip() or ast.get_docstring(ast.parse(text)), f"{name_of(path)}: what is it?"


@pytest.mark.parametrize("folder", ["flows", "tasks"])
def test_no_flow_or_task_is_named_like_a_package_that_we_import(folder: str) -> None:
    """Prefect puts the folder of a path entrypoint first on `sys.path`."""
    ours = {path.stem for path in (REPOSITORY / folder).glob("*.py")} - {"__init__"}
    used = {module.partition(".")[0] for path in MODULES for module in imported(path)}
    assert not ours & (used | set(sys.stdlib_module_names))

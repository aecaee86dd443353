"""The command line of a configuration: what it accepts, what it refuses and in which words."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from workspace.config import StageConfig, setting
from workspace.flags import FlagParser, UsageError


class Inner(StageConfig):
    """Settings of a part."""

    epochs: float = setting(3.0, position=1, description="passes", gt=0, le=10)
    names: tuple[str, ...] = setting((), position=2, description="names of things")


class Config(StageConfig):
    """Settings of a whole."""

    sources: list[str] = setting(
        position=1, description="files", positional=True, min_length=1, affects_output=False
    )
    workspace: Path = setting(Path("W"), position=2, description="output folder")
    page_dpi: int = setting(100, position=3, description="dots per inch", ge=36, le=600)
    mode: Literal["fast", "full"] = setting("fast", position=4, description="how thorough")
    ocr: bool = setting(True, position=5, description="read scans")
    limit: int | None = setting(7, position=6, description="at most so many", ge=1)
    labels: dict[str, int] = setting(default_factory=dict, position=7, description="100 % free")
    inner: Inner = setting(Inner(), position=8, description="the part")


def parse(*arguments: str) -> Config:
    return parser().parse(arguments).config


def parser() -> FlagParser[Config]:
    return FlagParser("python -m flows.x", Config, "What it does.", "How it ends.")


def refusal(*arguments: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(*arguments)
    return str(caught.value)


def test_bare_arguments_and_flags_fill_the_configuration() -> None:
    config = parse("a.pdf", "--page-dpi", "72", "b.pdf", "--mode=full", "--no-ocr")
    assert config == Config(sources=["a.pdf", "b.pdf"], page_dpi=72, mode="full", ocr=False)


def test_nested_settings_lists_mappings_and_none() -> None:
    config = parse(
        "a", "--inner.epochs", "0.5", "--inner.names", "x,y", "--inner.names", "z",
        "--limit", "none", "--labels", '{"k": 3}',
    )  # fmt: skip
    assert config.inner == Inner(epochs=0.5, names=("x", "y", "z"))
    assert config.limit is None
    assert config.labels == {"k": 3}


@given(st.lists(st.text(min_size=1).filter(lambda s: not s.startswith("-")), min_size=1))
def test_every_file_name_arrives_as_it_was_given(names: list[str]) -> None:
    assert parse(*names).sources == names


@given(
    dpi=st.integers(36, 600),
    mode=st.sampled_from(["fast", "full"]),
    ocr=st.booleans(),
    epochs=st.floats(0.1, 10),
)
def test_flags_and_file_mean_the_same(
    tmp_path_factory: pytest.TempPathFactory, dpi: int, mode: str, ocr: bool, epochs: float
) -> None:
    values: dict[str, Any] = {
        "sources": ["a"], "page_dpi": dpi, "mode": mode, "ocr": ocr, "inner": {"epochs": epochs},
    }  # fmt: skip
    file = tmp_path_factory.mktemp("config") / "c.yaml"
    file.write_text(yaml.safe_dump(values), encoding="utf-8")
    flags = ["a", "--page-dpi", str(dpi), "--mode", mode, "--ocr" if ocr else "--no-ocr"]
    assert parse("--config", str(file)) == parse(*flags, "--inner.epochs", repr(epochs))


def test_flags_win_over_the_file_and_keep_the_rest_of_a_group(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("sources: [a]\npage_dpi: 72\ninner: {epochs: 1.0, names: [n]}\n")
    config = parse("--config", str(file), "--page-dpi", "200", "--inner.epochs", "2")
    assert config.page_dpi == 200
    assert config.inner == Inner(epochs=2.0, names=("n",))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "--page-dip", "72"], ["--page-dip", "did you mean --page-dpi?"]),
        (["a", "--page-dpi", "7"], ["--page-dpi", "greater than or equal to 36", "'7'"]),
        (["a", "--page-dpi", "many"], ["--page-dpi", "integer", "'many'"]),
        (["a", "--page-dpi"], ["--page-dpi", "expected one argument"]),
        (["a", "--page", "72"], ["unknown flag --page"]),  # no abbreviations
        (["a", "--mode", "slow"], ["--mode", "'fast' or 'full'"]),
        (["a", "--inner.epochs", "99"], ["--inner.epochs", "less than or equal to 10"]),
        (["a", "--labels", "{"], ["--labels", "JSON"]),
        ([], ["SOURCES is required", "--config"]),
        (["a", "--config", "/nowhere.yaml"], ["/nowhere.yaml", "No such file"]),
    ],
)
def test_a_refusal_names_the_flag_and_the_cure(arguments: list[str], said: list[str]) -> None:
    text = refusal(*arguments)
    assert "\n" not in text
    assert all(part in text for part in said), text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("sources: [a]\npage_dip: 72", ["c.yaml: page_dip: unknown setting", "page_dpi"]),
        ("sources: [a]\npage_dpi: 7", ["c.yaml: page_dpi", "36"]),
        ("sources: [a]\ninner: {epochs: x}", ["c.yaml: inner.epochs", "number"]),
        ("sources: [a", ["c.yaml", "not valid YAML"]),
        ("- a", ["c.yaml", "name: value"]),
    ],
)
def test_a_refusal_names_the_file_and_the_key(
    tmp_path: Path, content: str, said: list[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(content, encoding="utf-8")
    text = refusal("--config", str(file))
    assert all(part in text for part in said), text


def test_every_fault_is_told_at_once() -> None:
    lines = refusal("--page-dpi", "7", "--mode", "slow").splitlines()
    assert len(lines) == 3
    assert {line.split(":")[0].split(" ")[0] for line in lines} == {
        "--page-dpi", "--mode", "SOURCES",
    }  # fmt: skip


def test_help_tells_every_setting_with_bounds_and_default() -> None:
    text = " ".join(parser().format_help().split())
    for part in (
        "python -m flows.x SOURCE…",
        "--page-dpi N dots per inch (36 to 600; default 100)",
        "--mode {fast,full} how thorough (default fast)",
        "--ocr, --no-ocr read scans (default on)",
        "--inner.epochs X passes (more than 0, at most 10; default 3.0)",
        "100 % free",
        "--config FILE",
    ):
        assert part in text, part


def test_help_shows_settings_in_the_order_of_their_positions() -> None:
    text = parser().format_help()
    places = [text.index(flag) for flag in ("--workspace", "--page-dpi PA"[:10], "--mode {")]
    assert places == sorted(places)


@pytest.fixture
def with_recipes(tmp_path: Path) -> FlagParser[Config]:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "small.yaml").write_text("page_dpi: 50\ninner: {epochs: 2, names: [a]}\n")
    (folder / "wrong.yaml").write_text("page_dpi: 9999\n")
    return FlagParser("python -m flows.x", Config, "What it does.", "End.", recipes=folder)


def test_a_recipe_is_below_the_file_and_the_flags(
    with_recipes: FlagParser[Config], tmp_path: Path
) -> None:
    config = with_recipes.parse(["a", "--recipe", "small"]).config
    assert (config.page_dpi, config.inner) == (50, Inner(epochs=2, names=("a",)))
    file = tmp_path / "own.yaml"
    file.write_text("inner: {epochs: 5}\n")
    changed = ["a", "--recipe", "small", "--config", str(file), "--page-dpi", "60"]
    config = with_recipes.parse(changed).config
    assert (config.page_dpi, config.inner) == (60, Inner(epochs=5, names=("a",)))


def test_a_recipe_may_be_a_file(with_recipes: FlagParser[Config], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("page_dpi: 40\n")
    assert with_recipes.parse(["a", "--recipe", str(file)]).config.page_dpi == 40


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("large", ["large", "small", "wrong"]),
        ("../small", ["../small"]),
        ("missing.yaml", ["missing.yaml"]),
        ("wrong", ["wrong.yaml", "page_dpi", "9999"]),
    ],
)
def test_a_bad_recipe_is_named(
    with_recipes: FlagParser[Config], given: str, words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        with_recipes.parse(["a", "--recipe", given])
    assert all(word in str(caught.value) for word in words)


def test_without_recipes_there_is_no_such_flag() -> None:
    assert "unknown flag --recipe" in refusal("a", "--recipe", "small")

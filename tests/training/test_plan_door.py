"""`python -m training.plan`: what it prints, what it refuses, its exit codes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.plan import PlanConfig, main
from workspace.flags import FlagParser

ROOT = Path(__file__).resolve().parents[2]


def as_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_has_layouts_losers_scaling_time_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    found = as_json(
        capsys, "Llama-2-13B", "--nodes", "4", "--tokens", "1e9", "--price-per-gpu-hour", "2"
    )
    assert found["model"]["parameters"] == 13_015_864_320
    (part,) = found["parts"]
    best = part["layouts"][0]
    assert best["dp"] * best["tp"] * best["pp"] * best["cp"] == part["gpus"] == 32
    assert part["hours"] == pytest.approx(1e9 / best["tokens_per_second"] / 3600)
    assert part["cost"] == pytest.approx(part["hours"] * 32 * 2)
    assert [row["nodes"] for row in part["scaling"]] == [1, 2, 4]
    assert {"slower", "too_large", "link"} <= set(part["lost_by_reason"])
    assert sum(best["memory_gib"].values()) == pytest.approx(best["peak_memory_gib"], abs=0.05)


def test_a_cluster_file_joins_equal_groups_and_parts_different_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.yaml"
    groups = [{"gpu": "H100", "nodes": 1}, {"gpu": "A100", "nodes": 2}, {"gpu": "H100", "nodes": 3}]
    path.write_text(yaml.safe_dump({"groups": groups}))
    found = as_json(capsys, "Llama-2-7B", "--cluster", str(path))
    assert [(part["gpu"], part["nodes"]) for part in found["parts"]] == [
        ("H100", 4), ("A100-80GB", 2),
    ]  # fmt: skip
    assert "refused" in found["mixed"]


def test_the_tables_name_layout_memory_and_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["Llama-3.1-8B", "--gpu", "H100", "--nodes", "2"]) == 0
    out = capsys.readouterr().out
    for word in ("FSDP 16", "peak GiB", "MFU", "does not fit", "link too slow", "Scaling"):
        assert word in out


@pytest.mark.parametrize("before", [[], ["--nodes", "2"]], ids=["first", "last"])
def test_the_model_is_named_with_its_flag_or_bare(
    before: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    flagged = as_json(capsys, *before, "--model", "Llama-2-7B")
    assert flagged["model"]["name"] == "Llama-2-7B"
    assert flagged == as_json(capsys, *before, "--model=Llama-2-7B")
    assert flagged == as_json(capsys, *before, "Llama-2-7B")


def test_the_help_shows_the_flag(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert "usage: python -m training.plan [--model MODEL]" in shown
    assert "--model TEXT" in shown and "bare:" not in shown


def test_the_examples_of_the_docs_are_understood() -> None:
    """Every `python -m training.plan` line of README, docs and recipes names flags that exist."""
    commands = [
        match[1].replace("\\\n", " ")
        for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("training/**/*.yaml")]
        for match in re.finditer(r"-m training\.plan ((?:[^\n`]*\\\n)*[^\n`]*)", path.read_text())
    ]
    assert len(commands) >= 5
    parser = FlagParser("plan", PlanConfig, "", "", can_preview=False)
    for command in commands:
        words = command.replace(" [--json]", "").split()
        config = parser.parse(words).config
        assert "--model" in words or config.backtest is not None, command


@pytest.mark.parametrize("name", ["plan.png", "plan.svg"])
def test_a_chart_is_written(tmp_path: Path, name: str) -> None:
    pytest.importorskip("matplotlib")
    chart = tmp_path / name
    assert main(["Llama-2-7B", "--chart", str(chart)]) == 0
    start = chart.read_bytes()[:256]
    assert start.startswith(b"\x89PNG") or b"<?xml" in start
    assert list(tmp_path.iterdir()) == [chart]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "--model is required"),
        (["Llama-2-7B", "--nodes", "0"], 2, "--nodes"),
        (["Llama-2-7B", "--gpu", "V900"], 2, "V900"),
        (["Llama-2-7B", "--memory-gib", "nan"], 2, "--memory-gib"),
        (["Llama-2-7B", "--tokens", "inf"], 2, "--tokens"),
        (["Llama-2-7B", "--node", "2"], 2, "did you mean --nodes"),
        (["Llama-2-7B", "--model", "Llama-2-13B"], 2, "give one"),
        (["--model"], 2, "--model: expected one argument"),
        (["no-such-model"], 1, "neither a folder"),
        (["Llama-2-7B", "--software", "abacus"], 1, "was not measured"),
        (["Llama-2-7B", "--cluster", "none.yaml"], 1, "none.yaml"),
        (["--backtest", "none.csv"], 1, "none.csv"),
        (["Llama-2-7B", "--chart", "plan.gif"], 1, "must end with .png or .svg"),
    ],
)
def test_what_is_wrong_is_named(
    arguments: list[str], code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == code
    assert words in capsys.readouterr().err


def test_nothing_that_fits_is_exit_code_1_with_the_nearest_miss(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["Llama-3.1-70B", "--gpu", "RTX4090"]) == 1
    assert "GiB short" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "words"),
    [("groups: []", "groups"), ("groups: [{gpu: X1}]", "X1"), ("groups: [{nodes: -1}]", "nodes"),
     ("[1]", "name: value"), ("groups: [{gpus: 4}]", "gpus"), ("{", "not valid YAML")],
)  # fmt: skip
def test_a_wrong_cluster_file_is_named_by_field(
    tmp_path: Path, text: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    assert main(["Llama-2-7B", "--cluster", str(path)]) == 1
    err = capsys.readouterr().err
    assert words in err and "cluster.yaml" in err


def test_every_setting_has_a_description_and_a_position() -> None:
    for name, field in PlanConfig.model_fields.items():
        assert field.description, name
        assert isinstance(field.json_schema_extra, dict), name

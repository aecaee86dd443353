"""Configuration: unknown keys are errors; the fingerprint covers what changes the output."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from workspace.config import StageConfig, setting
from workspace.errors import UserError


class ExampleConfig(StageConfig):
    workspace: Path = setting(position=1, description="folder", affects_output=False)
    dpi: int = setting(100, position=2, description="dots per inch", ge=36, le=600)
    workers: int = setting(1, position=3, description="processes", ge=1, affects_output=False)


def test_fingerprint_covers_only_what_changes_the_output() -> None:
    base = ExampleConfig(workspace=Path("a"))
    assert base.fingerprint() == ExampleConfig(workspace=Path("b"), workers=8).fingerprint()
    assert base.fingerprint() != ExampleConfig(workspace=Path("a"), dpi=150).fingerprint()
    assert base.output_settings() == {"dpi": 100}


def test_frozen() -> None:
    with pytest.raises(ValidationError):
        ExampleConfig(workspace=Path("a")).dpi = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("workspace: w\ndpi: 12\n", "dpi"),
        ("workspace: w\ndpy: 100\n", "dpy"),
        ("dpi: 100\n", "workspace"),
        ("- a\n- b\n", "must hold"),
        ("workspace: [unclosed\n", "not valid YAML"),
    ],
)
def test_a_wrong_file_is_refused_with_the_field_and_the_file(
    tmp_path: Path, text: str, named: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UserError) as caught:
        ExampleConfig.from_yaml(path)
    assert named in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.yaml"):
        ExampleConfig.from_yaml(tmp_path / "absent.yaml")

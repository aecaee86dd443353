"""What CONTRIBUTING promises of `make help` and of the hooks holds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

REPOSITORY = Path(__file__).resolve().parent.parent
MAKEFILE = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
HOOKS = yaml.safe_load((REPOSITORY / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
TARGETS = re.findall(r"^([a-z][\w-]*):(?!=)", MAKEFILE, re.M)


def test_make_help_lists_every_target_with_a_line() -> None:
    done = subprocess.run(
        ["make", "-s", "help"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    printed = re.sub(r"\x1b\[\d*m", "", done.stdout).splitlines()
    assert [line.split()[0] for line in printed] == TARGETS
    assert all(len(line.split()) > 2 for line in printed)


def test_no_target_is_taken_for_a_file() -> None:
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.M)
    assert phony is not None
    assert phony[1].split() == TARGETS


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A repository of its own, into which `pre-commit install` may write."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True, env=_without_git())
    shutil.copy(REPOSITORY / ".pre-commit-config.yaml", tmp_path)
    return tmp_path


def test_one_install_puts_every_stage_of_the_hooks_in_place(clone: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pre_commit", "install"], cwd=clone, check=True, env=_without_git()
    )
    installed = {path.name for path in (clone / ".git" / "hooks").iterdir() if not path.suffix}
    wanted = {stage for hook in _hooks() for stage in hook.get("stages", ["pre-commit"])}
    assert installed == wanted == {"pre-commit", "pre-push"}


def test_a_push_runs_what_ci_runs() -> None:
    """`make test` is lint, types and unit; each of their programs has a hook that a push runs."""
    [steps] = re.findall(r"\$\(MAKE\) --no-print-directory (.+)$", MAKEFILE, re.M)
    entries = [hook["entry"] for hook in _hooks() if "pre-push" in hook.get("stages", ["pre-push"])]
    for step in steps.split():
        programs = re.findall(r"\$\(PY\) -m ([\w ]+?)(?: \.| --|\n)", _recipe(step))
        assert programs
        for program in programs:
            direct = any(entry.startswith(f".venv/bin/{program}") for entry in entries)
            assert direct or f"make --no-print-directory {step}" in entries, program


def _recipe(target: str) -> str:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.M)
    assert found is not None, target
    return found[1]


def _hooks() -> list[dict[str, Any]]:
    return [hook for repository in HOOKS["repos"] for hook in repository["hooks"]]


def _without_git() -> dict[str, str]:
    """Git tells a hook, from which these tests may run, of the repository around it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

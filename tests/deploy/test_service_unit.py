"""deploy/dsm-serve.service, put in place as docs/slurm.md says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
UNIT = REPOSITORY / "deploy" / "dsm-serve.service"


def installed() -> str:
    """The unit after the sed line of the docs, run in this checkout."""
    docs = (REPOSITORY / "docs" / "slurm.md").read_text(encoding="utf-8")
    [line] = re.findall(r"^ *(sed .*dsm-serve\.service) \\\n *>~/", docs, re.MULTILINE)
    done = subprocess.run(
        ["bash", "-c", line], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_it_starts_serve_of_this_checkout() -> None:
    settings = dict(
        line.split("=", 1) for line in installed().splitlines() if re.match(r"\w+=", line)
    )
    assert settings["WorkingDirectory"] == str(REPOSITORY)
    python, module = settings["ExecStart"].split(" ", 1)
    assert python == f"{REPOSITORY}/.venv/bin/python"
    from flows.serve import ServeConfig
    from workspace.flags import FlagParser

    assert module.startswith("-m flows.serve ")
    parser = FlagParser("serve", ServeConfig, "", "", can_preview=False)
    assert parser.parse(module.split()[2:]).config.port == 4200


def test_systemd_takes_it(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("not installed: systemd-analyze")
    unit = tmp_path / UNIT.name
    # Where the tests run the interpreter may be another one than .venv's.
    unit.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", installed()))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", str(unit)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert UNIT.name not in done.stderr, "no remark on any of its lines"

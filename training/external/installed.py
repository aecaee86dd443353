"""Whether a program is there: asked of the interpreter and the folder that will run it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from workspace.errors import MissingToolError


def module_cure(module: str, install: str, python: str) -> str:
    """What to do where `python` cannot import `module`, "" where it can."""
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
    try:
        done = subprocess.run([python, "-c", code, module], capture_output=True, check=False)
    except OSError as error:
        return f"{python} cannot be started ({error.strerror}): set slurm.python"
    return f"{python} has no {module}: `{install}` there" if done.returncode else ""


def require_module(module: str, why: str, instead: str, python: str) -> None:
    """Raise `MissingToolError` where `python` cannot import `module` ("": it cannot be asked)."""
    cure = module_cure(module, f"pip install {module}", python) if python else ""
    if cure:
        raise MissingToolError(f"{why}, but {cure}; or {instead}")


def checkout_cure(name: str, address: str, script: str, folder: str) -> str:
    """What to do where `folder` is no checkout with `script`, or uv is missing; "" otherwise."""
    if not folder:
        return f"{name} is run from a checkout: clone {address} and set external.folder to it"
    if not (Path(folder).expanduser() / script).is_file():
        return f"external.folder {folder} has no {script}: it is no checkout of {address}"
    if shutil.which("uv") is None:
        return f"{name} is started by uv, which is not on PATH: `pip install uv`"
    return ""

"""What a program may do in the sandbox, at each level that works on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaluation.verifiers import sandbox
from evaluation.verifiers.sandbox import Limits
from workspace.errors import MissingToolError, UserError

PYTHON = "/usr/bin/python3"
SMALL = Limits(cpu_s=1, memory_bytes=256 << 20, output_bytes=1 << 16, wall_s=30)


@pytest.fixture(params=["bwrap", "rlimit"])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("DSM_SANDBOX", request.param)
    sandbox.level.cache_clear()
    try:
        sandbox.level()
    except MissingToolError:
        pytest.skip(f"sandbox level {request.param} does not work on this machine")
    finally:
        sandbox.level.cache_clear()
    return str(request.param)


@pytest.fixture(autouse=True)
def _forget_level() -> object:
    yield
    sandbox.level.cache_clear()


def run_python(folder: Path, code: str, limits: Limits = SMALL) -> sandbox.Finished:
    if not Path(PYTHON).exists():
        pytest.skip(f"{PYTHON} is not installed")
    return sandbox.run(folder, [PYTHON, "-I", "-c", code], limits)


@pytest.mark.parametrize(
    ("code", "limit"),
    [
        ("while True: pass", "cpu"),
        ("x = bytearray(1 << 30)", ""),  # Python survives its MemoryError with exit code 1
        ("while True: print('x' * 1000)", "output"),
        ("open('big', 'wb').write(b'x' * (1 << 20))", ""),
    ],
)
def test_limits_end_a_program(level: str, tmp_path: Path, code: str, limit: str) -> None:
    finished = run_python(tmp_path, code)
    assert finished.code != 0
    assert finished.limit == limit
    assert len(finished.stdout) <= SMALL.output_bytes
    big = tmp_path / "big"
    assert not big.exists() or big.stat().st_size <= SMALL.output_bytes


def test_an_honest_program_runs(level: str, tmp_path: Path) -> None:
    finished = run_python(tmp_path, "open('out','w').write('kept'); print('hello')")
    assert (finished.code, finished.limit, finished.stdout) == (0, "", "hello\n")
    assert (tmp_path / "out").read_text() == "kept"


def test_a_sleeper_is_the_machines_fault(level: str, tmp_path: Path) -> None:
    finished = run_python(tmp_path, "import time; time.sleep(60)", Limits(wall_s=0.5))
    assert finished.limit == "wall"


def test_no_child_outlives_the_run(level: str, tmp_path: Path) -> None:
    code = (
        "import subprocess; "
        "subprocess.Popen(['/bin/sh', '-c', 'sleep 1; touch survived']); print('done')"
    )
    assert run_python(tmp_path, code).stdout == "done\n"
    time.sleep(1.5)
    assert not (tmp_path / "survived").exists()


def test_bwrap_shows_no_files_and_no_network(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DSM_SANDBOX", "bwrap")
    sandbox.level.cache_clear()
    try:
        sandbox.level()
    except MissingToolError:
        pytest.skip("bubblewrap does not work on this machine")
    secret = tmp_path / "secret"
    secret.write_text("x")
    work = tmp_path / "work"
    work.mkdir()
    probe = f"""
import os, socket
print(os.path.exists({str(secret)!r}), os.path.exists('/etc/passwd'), os.getuid())
print([n for _, n in socket.if_nameindex() if n != 'lo'], 'HOME' in os.environ)
try: open('/usr/x', 'w'); print('wrote')
except OSError: print('refused')
"""
    finished = run_python(work, probe)
    assert finished.stdout.splitlines() == ["False False 65534", "[] False", "refused"]


def test_a_wrong_level_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSM_SANDBOX", "docker")
    sandbox.level.cache_clear()
    with pytest.raises(UserError, match="docker"):
        sandbox.level()


def test_the_weakest_level_is_chosen_where_nothing_is_installed(tmp_path: Path) -> None:
    (tmp_path / "true").symlink_to("/bin/true")
    found = subprocess.run(
        [sys.executable, "-c", "from evaluation.verifiers import sandbox; print(sandbox.level())"],
        env={**os.environ, "PATH": str(tmp_path), "DSM_SANDBOX": "auto"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout == "none\n"

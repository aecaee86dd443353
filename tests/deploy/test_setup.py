"""deploy/setup: what is missing is installed in the right order, what is there is skipped.

The script runs in a small copy of the checkout, with programs on PATH that write down how they were
called.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "cat", "cut", "dirname", "env", "sha256sum", "tail")
LOCKS = sorted(REPOSITORY.glob("requirements*.lock"))

FAKES = {
    "id": "echo ${FAKE_UID:-0}",
    "dpkg-query": '[[ " $FAKE_INSTALLED " == *" ${@: -1} "* ]] && echo -n installed',
    "apt-get": 'echo "apt-get $*" >>"$CALLS"; [[ " $* " != *" ${FAKE_FAILING:-none} "* ]]',
    "python3": """
case "$*" in
    -V) echo "Python ${FAKE_PYTHON:-3.12.1}" ;;
    *version_info*)
        version=${FAKE_PYTHON:-3.12.1}
        faked="import sys; sys.version_info = (${version//./, })"
        "$REAL_PYTHON" -c "$faked; exec(sys.argv[1])" "$2" ;;
    *"import ensurepip"*) ;;
    "-m venv "*)
        mkdir -p .venv/bin
        for name in pip uv python; do cp "$FAKES/installed-$name" .venv/bin/$name; done ;;
esac""",
    "installed-pip": 'echo "pip $*" >>"$CALLS"; [[ "$*" == *torch* ]] && touch .venv/torch || true',
    "installed-uv": 'echo "uv $*" >>"$CALLS"',
    "installed-python": "[[ -e .venv/torch ]]",  # asked for torch's version
}


class Checkout:
    """A copy of what the script reads, and what it calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "deploy").mkdir()
        shutil.copy(REPOSITORY / "deploy" / "setup", folder / "deploy")
        for path in (REPOSITORY / "pyproject.toml", *LOCKS):
            shutil.copy(path, folder)
        self.bin = folder / "bin"
        self.bin.mkdir()
        for name in (*TOOLS, "cp", "mkdir", "touch"):
            (self.bin / name).symlink_to(str(shutil.which(name)))
        for name, body in FAKES.items():
            (self.bin / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
            (self.bin / name).chmod(0o755)

    def setup(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / "deploy" / "setup"), *arguments],
            env={
                "PATH": str(self.bin),
                "FAKES": str(self.bin),
                "REAL_PYTHON": sys.executable,
                "CALLS": str(self.folder / "calls"),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=60,
        )

    @property
    def calls(self) -> list[str]:
        """What was called since the last look."""
        path = self.folder / "calls"
        found = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return found


def dry_run(target: str) -> subprocess.CompletedProcess[str]:
    """What `make target` would call, also when the tests themselves were started by make."""
    from_outer_make = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")
    return subprocess.run(
        ["make", "-n", target],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if name not in from_outer_make},
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def test_without_root_the_one_line_to_run_is_printed(checkout: Checkout) -> None:
    done = checkout.setup("apt", "iverilog", "yosys", FAKE_UID="1000", FAKE_INSTALLED="yosys")
    assert done.returncode == 1
    assert "not root" in done.stderr
    [line] = [line for line in done.stderr.splitlines() if "apt-get install" in line]
    assert "iverilog" in line and "yosys" not in line
    assert checkout.calls == []


@pytest.mark.parametrize("uid", ["0", "1000"])
def test_packages_that_are_there_are_skipped_in_silence(checkout: Checkout, uid: str) -> None:
    done = checkout.setup("apt", "iverilog", "yosys", FAKE_UID=uid, FAKE_INSTALLED="yosys iverilog")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert checkout.calls == []


def test_root_installs_what_is_missing_alone(checkout: Checkout) -> None:
    done = checkout.setup("apt", "iverilog", "yosys", "munge", FAKE_INSTALLED="yosys")
    assert done.returncode == 0, done.stderr
    assert checkout.calls == ["apt-get install -y -q --no-install-recommends iverilog munge"]
    assert "iverilog munge" in done.stderr  # it says what it installs


def test_the_lists_of_packages_are_updated_only_when_an_install_fails(checkout: Checkout) -> None:
    done = checkout.setup("apt", "munge", FAKE_FAILING="install")
    install = "apt-get install -y -q --no-install-recommends munge"
    assert checkout.calls == [install, "apt-get update -q", install]
    assert done.returncode == 1
    assert "apt-get install failed" in done.stderr


def test_without_apt_get_the_packages_are_named(checkout: Checkout) -> None:
    (checkout.bin / "apt-get").unlink()
    done = checkout.setup("apt", "munge")
    assert done.returncode == 1
    assert "no apt-get" in done.stderr and "munge" in done.stderr


def add_command(checkout: Checkout, name: str) -> None:
    (checkout.bin / name).write_text("#!/usr/bin/env bash\n")
    (checkout.bin / name).chmod(0o755)


@pytest.mark.parametrize("action", ["apt", "try"])
def test_commands_from_elsewhere_will_do(checkout: Checkout, action: str) -> None:
    (checkout.bin / "apt-get").unlink()
    (checkout.bin / "dpkg-query").unlink()
    for name in ("iverilog", "bwrap", "yosys"):
        add_command(checkout, name)
    done = checkout.setup(action, "iverilog", "bubblewrap", "yosys", FAKE_UID="1000")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("has_apt", "cure"), [(True, "sudo apt-get install bubblewrap yosys"), (False, "no apt-get")]
)
def test_who_can_do_without_goes_on_and_knows_what_is_missing(
    checkout: Checkout, has_apt: bool, cure: str
) -> None:
    add_command(checkout, "iverilog")
    if not has_apt:
        (checkout.bin / "apt-get").unlink()
    done = checkout.setup("try", "iverilog", "bubblewrap", "yosys", FAKE_UID="1000")
    assert done.returncode == 0
    assert "going on without bubblewrap yosys" in done.stderr and cure in done.stderr
    assert checkout.calls == []


def test_who_can_do_without_gets_it_where_that_is_possible(checkout: Checkout) -> None:
    assert checkout.setup("try", "yosys", FAKE_UID="0").returncode == 0
    assert checkout.calls == ["apt-get install -y -q --no-install-recommends yosys"]


def test_serving_needs_no_root_and_no_debian() -> None:
    done = dry_run("serve")
    assert "deploy/setup try iverilog" in done.stdout and "deploy/setup apt" not in done.stdout


@pytest.mark.parametrize("version", ["3.9.2", "3.10.14"])
def test_an_old_python_is_refused_before_anything_is_made(checkout: Checkout, version: str) -> None:
    done = checkout.setup("demo", FAKE_PYTHON=version)
    assert done.returncode == 1
    for part in ("3.11 or newer", f"found: Python {version}", "PYTHON=/path/to/python"):
        assert part in done.stderr
    assert checkout.calls == []
    assert not (checkout.folder / ".venv").exists()


def test_another_python_can_be_named(checkout: Checkout) -> None:
    shutil.move(checkout.bin / "python3", checkout.bin / "python3.11")
    done = checkout.setup("venv", PYTHON="python3.11", FAKE_PYTHON="3.11.0")
    assert done.returncode == 0, done.stderr
    assert "with Python 3.11.0" in done.stderr


def order(calls: list[str]) -> list[str]:
    """What each call installs, in order."""
    wanted = (r"torch==", r"uv==", r"requirements-demo\.lock", r"requirements\.lock", r"-e \.")
    return [next(part for part in wanted if re.search(part, call)) for call in calls]


def test_torch_comes_first_from_where_is_named(checkout: Checkout) -> None:
    done = checkout.setup("demo", TORCH_PIP_ARGS="--find-links /wheels")
    assert done.returncode == 0, done.stderr
    calls = checkout.calls
    assert order(calls) == [
        "torch==", "uv==", r"requirements\.lock", r"-e \.", r"requirements-demo\.lock",
    ]  # fmt: skip
    assert "--find-links /wheels" in calls[0]
    assert not any("--find-links" in call for call in calls[1:])
    locked = [call for call in calls if ".lock" in call]
    assert all("--require-hashes" in call and "--no-deps" in call for call in locked)


def test_pip_alone_does_as_well(checkout: Checkout) -> None:
    assert checkout.setup("venv", INSTALLER="pip").returncode == 0
    calls = checkout.calls
    assert order(calls) == ["torch==", r"requirements\.lock", r"-e \."]
    assert all(call.startswith("pip ") for call in calls)


def test_a_second_call_does_nothing(checkout: Checkout) -> None:
    assert checkout.setup("demo").returncode == 0
    assert checkout.calls
    again = checkout.setup("demo")
    assert (again.returncode, again.stdout, again.stderr) == (0, "", "")
    assert checkout.calls == []


def test_another_lock_is_installed_and_torch_stays(checkout: Checkout) -> None:
    assert checkout.setup("demo").returncode == 0
    assert checkout.calls
    with (checkout.folder / "requirements.lock").open("a") as lock:
        lock.write("# changed\n")
    assert checkout.setup("demo").returncode == 0
    assert order(checkout.calls) == ["uv==", r"requirements\.lock", r"-e \."]


def test_a_failed_install_is_not_taken_for_done(checkout: Checkout) -> None:
    uv = checkout.bin / "installed-uv"
    working = uv.read_text()
    uv.write_text(f"{working}exit 2\n")
    assert checkout.setup("venv").returncode != 0
    assert checkout.calls
    shutil.copy(checkout.bin / "installed-pip", checkout.folder / ".venv" / "bin" / "uv")
    assert checkout.setup("venv").returncode == 0
    assert r"requirements\.lock" in order(checkout.calls)


@pytest.mark.parametrize("arguments", [[], ["all"]])
def test_wrong_usage_is_explained(checkout: Checkout, arguments: list[str]) -> None:
    done = checkout.setup(*arguments)
    assert done.returncode == 1
    assert "usage: deploy/setup" in done.stderr


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.name)
def test_a_lock_names_no_index_and_has_a_hash_for_everything(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    lines = text.replace("\\\n", " ").splitlines()
    assert "://" not in text
    requirements = [line for line in lines if line.strip() and not line.startswith("#")]
    assert requirements
    for line in requirements:
        assert re.match(r"[\w.\-]+(\[[\w,]+\])?==\S+ ", line), line
        assert "--hash=sha256:" in line, line
    names = {line.partition("==")[0].lower() for line in requirements}
    assert not {name for name in names if name == "torch" or name.startswith("nvidia")}


@pytest.mark.parametrize(
    "target", ["demo", "serve", "browse", "test", "lint", "types", "unit", "bench", "chaos"]
)
def test_every_target_sets_up_first_and_asks_for_debian_packages_by_name(target: str) -> None:
    done = dry_run(target)
    assert done.returncode == 0, done.stderr
    commands = done.stdout.splitlines()
    assert commands[0] == "deploy/setup demo"
    for command in commands:
        if command.startswith(("deploy/setup apt", "deploy/setup try")):
            assert re.fullmatch(r"deploy/setup (apt|try)( [a-z][a-z0-9.+-]+)+", command)

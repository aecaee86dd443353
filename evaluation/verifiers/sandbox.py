"""Run one hostile program: no files but its own folder, no network, bounded CPU, memory, output.

Levels, chosen once a process (`level()`):

    bwrap   bubblewrap: own namespaces without a network, read-only /usr, only the work folder
            writable, no capabilities; and the limits below
    rlimit  CPU, memory and file-size limits by prlimit(1); the program sees this machine's files
    none    wall clock alone

The level stands in every verdict on a program that was run: at the end of `Verdict.detail`, and as
`sandbox` in the verdict lines of the public benches. No verdict is kept for another level.

`DSM_SANDBOX` picks one (default `auto`: the strongest that works here). The program's output goes
to files, so the file-size limit bounds it too. On any end the whole process group is killed.

Not covered: system calls are not filtered (no seccomp); on `rlimit` and `none` a program may read
and write what the user may, so what is run there must have passed a static gate.
"""

from __future__ import annotations

import functools
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from workspace.errors import MissingToolError, UserError

Level = Literal["bwrap", "rlimit", "none"]
LEVELS: tuple[Level, ...] = ("bwrap", "rlimit", "none")

# How the sandbox's own programs begin what they say when they cannot start the one inside.
OWN_MESSAGES = ("bwrap: ", "prlimit: ", "limits: ")
_NO_LIMITS = "limits: this process may not use as much as its programs should"

_MEMORY_WORDS = ("bad_alloc", "out of memory", "annot allocate", "memory exhausted")


@dataclass(frozen=True)
class Limits:
    """What a program may use. `wall_s` is not a verdict: passing it is the machine's fault."""

    cpu_s: int = 10
    memory_bytes: int = 1 << 30
    output_bytes: int = 32 << 20
    wall_s: float = 120.0


class Finished(NamedTuple):
    """How a program ended. `limit` is "", cpu, memory, output or wall."""

    code: int
    limit: str
    stdout: str
    stderr: str
    cpu_s: float


@functools.cache
def level() -> Level:
    """The sandbox level of this process."""
    wanted = os.environ.get("DSM_SANDBOX", "auto")
    if wanted == "auto":
        return next(candidate for candidate in LEVELS if _works(candidate))
    for candidate in LEVELS:
        if wanted == candidate:
            if not _works(candidate):
                raise MissingToolError(
                    f"DSM_SANDBOX={wanted} does not work on this machine: install bubblewrap and "
                    "util-linux, allow user namespaces, or unset DSM_SANDBOX"
                )
            return candidate
    raise UserError(f"DSM_SANDBOX={wanted!r}: use auto, {', '.join(LEVELS)}")


def _works(candidate: Level) -> bool:
    command = wrap(candidate, Path("/"), ["true"], Limits())
    if shutil.which(command[0]) is None:
        return False
    probe = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    return probe.returncode == 0


def wrap(
    chosen: Level,
    folder: Path,
    command: Sequence[str],
    limits: Limits,
    tool: str = "",
    *,
    proc: bool = False,
    limits_itself: bool = False,
) -> list[str]:
    """`command` as it is started at level `chosen`, with `folder` as its working folder.

    `tool` is the program whose installation must be seen inside, by default the command's own.
    `proc` shows a /proc of the sandbox's own processes, for programs that look themselves up.
    `limits_itself` is for a script of ours that begins with `shell_limits`.
    """
    if chosen == "none":
        return list(command)
    bounded = [
        "prlimit",
        # The hard limit lies above the soft one: SIGXCPU tells what happened, SIGKILL ends those
        # who ignore it.
        f"--cpu={limits.cpu_s}:{limits.cpu_s + 1}",
        f"--as={limits.memory_bytes}",
        f"--fsize={limits.output_bytes}",
        "--core=0",
    ]
    if limits_itself:
        bounded = []
    if chosen == "rlimit":
        return [*bounded, *command]
    tool = tool or command[0]
    inside = "/work" if folder != Path("/") else "/"
    bind = ["--bind", str(folder), "/work"] if folder != Path("/") else []
    return [
        *bounded,
        "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL",
        "--uid", "65534", "--gid", "65534", "--clearenv", "--setenv", "PATH", _search_path(tool),
        "--ro-bind", "/usr", "/usr", *_system_links(), "--dev", "/dev",
        *(["--proc", "/proc"] if proc else []),
        "--size", str(64 << 20), "--tmpfs", "/tmp",  # noqa: S108 (its own /tmp)
        *_tool_prefix(tool),  # may lie below /tmp
        *bind, "--chdir", inside, "--", *command,
    ]  # fmt: skip


def shell_limits(limits: Limits) -> str:
    """The first line of a script that starts several programs: the limits of `wrap`, for a shell.

    Each program may use all of them. It saves the start of prlimit(1).
    """
    if level() == "none":
        return ""
    return (
        f"{{ ulimit -S -t {limits.cpu_s} && ulimit -H -t {limits.cpu_s + 1} && "
        f"ulimit -v {limits.memory_bytes >> 10} && ulimit -f {limits.output_bytes >> 9} && "
        f"ulimit -c 0; }} 2>/dev/null || {{ echo '{_NO_LIMITS}' >&2; exit 1; }}\n"
    )


def _system_links() -> list[str]:
    """/lib, /bin, ... as this machine has them: links into /usr, or folders of their own."""
    options: list[str] = []
    for name in ("lib", "lib32", "lib64", "bin", "sbin"):
        path = Path("/") / name
        if path.is_symlink():
            options += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            options += ["--ro-bind", str(path), str(path)]
    return options


def _tool_prefix(tool: str) -> list[str]:
    """Show the installation folder of a tool that lies outside /usr."""
    found = shutil.which(tool)
    if found is None:
        return []
    prefix = Path(found).resolve().parent.parent
    if prefix == Path("/") or prefix.is_relative_to("/usr"):
        return []
    return ["--ro-bind", str(prefix), str(prefix)]


def _search_path(tool: str) -> str:
    found = shutil.which(tool)
    folder = [str(Path(found).resolve().parent)] if found else []
    return ":".join([*folder, "/usr/local/bin", "/usr/bin", "/bin"])


def run(
    folder: Path,
    command: Sequence[str],
    limits: Limits,
    *,
    tool: str = "",
    proc: bool = False,
    limits_itself: bool = False,
) -> Finished:
    """Run `command` in `folder` at this process's level and wait for its end.

    `command[0]`, and `tool` when it starts another one, must be installed (`MissingToolError`
    otherwise). Relative names in `command` are inside `folder`. `proc` and `limits_itself` are
    those of `wrap`.
    """
    for program in (command[0], tool or command[0]):
        if shutil.which(program) is None:
            raise MissingToolError(f"{program} is not installed or not on PATH")
    out, err = folder / ".stdout", folder / ".stderr"
    with out.open("wb") as out_stream, err.open("wb") as err_stream:
        child = subprocess.Popen(
            wrap(level(), folder, command, limits, tool, proc=proc, limits_itself=limits_itself),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=out_stream,
            stderr=err_stream,
            env={"PATH": os.environ.get("PATH", os.defpath)},
            start_new_session=True,
        )
        code, cpu_s, overdue = _wait(child, limits.wall_s)
    stdout, stderr = read_start(out, limits.output_bytes), read_start(err, 1 << 16)
    full = max(out.stat().st_size, err.stat().st_size) >= limits.output_bytes
    limit = "wall" if overdue else _limit_hit(code, cpu_s, stderr, full, limits)
    return Finished(code, limit, stdout, stderr, cpu_s)


def _wait(child: subprocess.Popen[bytes], wall_s: float) -> tuple[int, float, bool]:
    """Exit code (128 + signal as shells give it), CPU seconds, whether the wall limit passed."""
    try:
        overdue = not _ends_within(child.pid, wall_s)
        if overdue:
            _kill_group(child.pid)
        _, status, usage = os.wait4(child.pid, 0)
    finally:
        _kill_group(child.pid)
    code = os.waitstatus_to_exitcode(status)
    child.returncode = code  # reaped here, for the sake of its resource usage
    return (128 - code if code < 0 else code), usage.ru_utime + usage.ru_stime, overdue


def _ends_within(pid: int, wall_s: float) -> bool:
    """Wait for the end of `pid` without reaping it; no polling, which costs short runs a third."""
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(wall_s * 1000))
    finally:
        os.close(descriptor)


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _limit_hit(code: int, cpu_s: float, stderr: str, full: bool, limits: Limits) -> str:
    if code == 0:
        return ""
    if full or code == 128 + signal.SIGXFSZ:
        return "output"
    if code == 128 + signal.SIGXCPU or cpu_s >= limits.cpu_s * 0.95:
        return "cpu"
    return "memory" if code == 128 + signal.SIGABRT else limit_in_text(stderr)


def limit_in_text(said: str) -> str:
    """The limit that a program's child ran into, from what the program or its shell said of it."""
    if "CPU time limit exceeded" in said:
        return "cpu"
    if "File size limit exceeded" in said:
        return "output"
    return "memory" if any(word in said for word in _MEMORY_WORDS) else ""


def read_start(path: Path, most: int) -> str:
    """The first `most` bytes of a file that a hostile program may have written; "" without it."""
    if not path.is_file() or path.is_symlink():
        return ""
    with path.open("rb") as stream:
        return stream.read(most).decode("utf-8", "replace")

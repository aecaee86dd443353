"""Icarus Verilog's compiler without the driver around it.

    icarus = compiler()
    icarus.settings(text, top, "both.vvp")       # what `ivl` reads from a file
    icarus.command("both.conf", "both.sv")       # a line for a shell

`iverilog` writes settings for the compiler proper (`ivl`), then starts a shell, a preprocessor and
the compiler: four programs where one does the work, half of a small answer's time. What it would
have written and run is learnt from the driver itself, once a process, by pointing it to a folder of
ours (`-B`). Texts must be preprocessed.

Libraries of system functions are loaded by name: three of six cost 1.5 ms an answer, so they are
left out of a text that calls nothing of theirs.
"""

from __future__ import annotations

import functools
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Final, NamedTuple

from evaluation.verifiers import temporary_disk
from workspace.errors import DsmError, MissingToolError

_WARNINGS: Final = ("-Wall", "-Winfloop", "-Wno-timescale")  # upstream's
_TOP, _OUT = "dsm_top", "dsm_out"
_KEEPS_SETTINGS: Final = """#!/bin/sh
while IFS= read -r line; do printf '%s\\n' "$line"; done <"${1#-C}" >"${0%/*}/settings"
"""
_DOES_NOTHING: Final = "#!/bin/sh\n"
_LIBRARY = re.compile(r'^:vpi_module "(?P<base>.*)/system\.vpi";', re.MULTILINE)
_EXTRA_LIBRARY = re.compile(r"^module:.*/(?:vhdl_\w+|va_math|v2005_math)\.vpi\n", re.MULTILINE)
_PREPROCESSOR = re.compile(r"^ivlpp:.*\n", re.MULTILINE)
_SYSTEM = re.compile(r"\$[A-Za-z_]\w*")
# Part of the language, of system.vpi or of v2009.vpi on Icarus 11 and 12.
_PLAIN: Final = frozenset({
    "$display", "$write", "$strobe", "$monitor", "$finish", "$stop", "$random", "$urandom",
    "$time", "$stime", "$realtime", "$signed", "$unsigned", "$bits",
    "$readmemh", "$readmemb", "$writememh", "$writememb",
})  # fmt: skip


class BrokenToolchainError(DsmError):
    """The simulator fails a right module or passes a wrong one: nothing may be scored with it."""


class Compiler(NamedTuple):
    """The compiler and the settings that its driver gives it, with the top module left open."""

    base: Path
    template: str

    def settings(self, text: str, top: str, out: str) -> str:
        """What the compiler reads from a file before it compiles `text`."""
        chosen = self.template.replace(_TOP, top).replace(_OUT, out)
        if _PLAIN.issuperset(_SYSTEM.findall(text)):
            return _EXTRA_LIBRARY.sub("", chosen)
        return chosen

    def command(self, settings: str, source: str) -> str:
        """A shell's line that compiles the file `source`."""
        words = [f"{self.base}/ivl", f"-C{settings}", f"-C{self.base}/vvp.conf", "--", "-"]
        return f"{shlex.join(words)} <{shlex.quote(source)}"


def compiler() -> Compiler:
    """The compiler of the `iverilog` on PATH.

    Raises `MissingToolError` without one, `BrokenToolchainError` when it compiles nothing.
    """
    found = shutil.which("iverilog")
    if found is None:
        raise MissingToolError("iverilog is not installed or not on PATH: apt install iverilog")
    return _learn(found)


@functools.cache
def _learn(driver: str) -> Compiler:
    with tempfile.TemporaryDirectory(prefix="dsm-icarus-") as name:
        folder = Path(name)
        (folder / "empty.sv").write_text(f"module {_TOP}; endmodule\n")
        said = _run(driver, folder)
        library = _LIBRARY.search(_text(folder / _OUT))
        if library is None:
            raise _broken(folder, f"{driver} cannot compile an empty module: {said[:200]!r}")
        base = Path(library["base"])
        for program, script in (("ivl", _KEEPS_SETTINGS), ("ivlpp", _DOES_NOTHING)):
            (folder / program).write_text(script)
            (folder / program).chmod(0o755)
        said = _run(driver, folder, f"-B{folder}")
        template = _text(folder / "settings").replace(str(folder), str(base))
        template = _PREPROCESSOR.sub("", template)
        if not {f"root:{_TOP}", f"out:{_OUT}"} <= set(template.splitlines()):
            raise _broken(folder, f"{driver} gives its compiler no settings: {said[:200]!r}")
    return Compiler(base, template)


def _broken(folder: Path, said: str) -> Exception:
    full = temporary_disk.is_full(folder)
    return temporary_disk.full_error() if full else BrokenToolchainError(said)


def _run(driver: str, folder: Path, *flags: str) -> str:
    command = [driver, *flags, "-g2012", *_WARNINGS, "-s", _TOP, "-o", _OUT, "empty.sv"]
    ended = subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False
    )
    return (ended.stderr or ended.stdout).decode("utf-8", "replace")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""

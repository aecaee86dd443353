"""What a step says on stderr: passed on to the job's log as it comes, its end kept."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import deque
from typing import IO, Final

_KEPT_LINES: Final = 200
_TOLD: Final = 3
_LONGEST: Final = 400
_LABEL = re.compile(r"^\s*\d+: ")  # srun --label: which task said it


class StepOutput:
    """Of `step`, whose stderr is a pipe (else nothing is known of what it says)."""

    def __init__(self, step: subprocess.Popen[bytes]) -> None:
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self._thread = threading.Thread(target=self._copy, args=(step.stderr,), daemon=True)
        self._thread.start()

    def last_words(self) -> str:
        """Of a step that has ended: its last lines that speak of an error, else its last ones.
        What several tasks said is told once."""
        self._thread.join(5.0)  # a process that the step left behind may hold the pipe open
        lines = list(dict.fromkeys(_LABEL.sub("", line).strip() for line in list(self._lines)))
        lines = [line for line in lines if line]
        errors = [line for line in lines if "error" in line.lower()]
        return " | ".join((errors or lines)[-_TOLD:])[:_LONGEST]

    def _copy(self, stream: IO[bytes] | None) -> None:
        for line in stream or ():
            sys.stderr.buffer.write(line)
            sys.stderr.buffer.flush()
            self._lines.append(line.decode("utf-8", "replace"))

"""The child process that parses documents: `python -m corpus.worker`, started by `worker_pool`.

Reads one JSON task a line from stdin, answers one JSON line on the stdout that it was started
with; what libraries print goes to stderr. The first line holds the setup, and a later line of kind
`setup` another one, without an answer. Messages are JSON, not pickles: a document that takes over a
child must not reach the parent through them.

Answers: {"ready": true} once, then for each task {"page": n} after each page or {"document": n}
after each document of a batch, and {"done": {...}}, {"unreadable": {...}} or {"error": {...}}; each
carries the resident memory in MB, and the last one the CPU seconds of the task by step
(`corpus.step_clock`). Memory is limited by an rlimit; a task that hangs is killed from outside.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from corpus.parsed import ParseOptions, Unreadable
from corpus.step_clock import CLOCK
from workspace.memory import trim_heap

if TYPE_CHECKING:
    from corpus.parse_task import Job

Send = Callable[[dict[str, Any]], None]

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve tasks until stdin closes."""
    replies = _take_over_stdout()
    _die_with_parent()
    setup = json.loads(sys.stdin.readline())
    _limit(setup["memory_limit_mb"])

    def send(message: dict[str, Any]) -> None:
        replies.write(json.dumps({**message, "rss_mb": resident_mb()}) + "\n")
        replies.flush()

    sys.meta_path.insert(0, _WithoutTorch())
    context = _make_context(setup)
    send({"ready": True})
    for line in sys.stdin:
        message = json.loads(line)
        if message["kind"] == "setup":
            context = _make_context(message["setup"])
        else:
            _perform(context, message, send)
    return 0


def _make_context(setup: dict[str, Any]) -> Any:
    # Imported under the memory limit, and only here: the parent stays light.
    from corpus.chunks import ChunkLimits
    from corpus.parse_task import TaskContext
    from corpus.tokenizers import load_counter

    return TaskContext(
        units=Path(setup["units"]),
        spool=Path(setup["spool"]),
        options=ParseOptions(**setup["options"]),
        chunk_limits=ChunkLimits(
            setup["chunk_tokens"], setup["chunk_overlap"], load_counter(setup["chunk_tokenizer"])
        ),
        max_bytes=setup["max_bytes"],
        redact=tuple(setup["redact"]),
    )


def _perform(context: Any, task: dict[str, Any], send: Send) -> None:
    CLOCK.restart()
    answer = _attempt(context, task, send)
    trim_heap()  # parsers of different kinds follow each other and fragment the heap
    send({**answer, "cpu_s": CLOCK.read()})


def _attempt(context: Any, task: dict[str, Any], send: Send) -> dict[str, Any]:
    """The answer to a task: done, unreadable or error."""
    try:
        return {"done": _run(context, task, send)}
    except Unreadable as error:
        fields = {
            "stage": error.stage,
            "reason": error.reason,
            "detail": error.detail,
        }
        return {"unreadable": fields}
    except MemoryError:
        return {"error": {"reason": "out_of_memory", "detail": "the memory limit was reached"}}
    except Exception as error:  # a library's fault; the parent records it for this document alone
        traceback.print_exc()
        from corpus.parse_task import describe_error

        return {"error": {"reason": "parser_error", "detail": describe_error(error)}}


def _run(context: Any, task: dict[str, Any], send: Send) -> dict[str, Any]:
    from corpus import parse_task

    if task["kind"] in ("list", "unlock"):
        return parse_task.look_inside(task)
    if task["kind"] == "batch":
        jobs = [_job(one) for one in task["documents"]]
        return parse_task.parse_batch(context, jobs, lambda n: send({"document": n}))
    job = _job(task)
    if task["kind"] == "open":
        return parse_task.open_document(context, job)
    if task["kind"] == "pages":
        return parse_task.read_pages(
            context, job, task["first"], task["last"], lambda page: send({"page": page})
        )
    lost = {int(page): (reason, detail) for page, reason, detail in task["lost"]}
    return parse_task.join_document(context, job, lost)


def _job(task: dict[str, Any]) -> Job:
    from corpus.parse_task import Job

    path = Path(task["path"])
    return Job(task["doc_id"], path, task["suffix"], task["bytes"], task["password"])


def _take_over_stdout() -> IO[str]:
    """The old stdout for answers; print() and C libraries now write to stderr."""
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return replies


def _die_with_parent() -> None:
    """Ask the kernel to kill us when the parent dies, however that happens."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:  # it died before we asked
        sys.exit(1)


class _WithoutTorch:
    """spaCy's backend imports torch where it is installed: 1.5 s and 200 MB a child for nothing."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "torch":
            raise ModuleNotFoundError("parsers do without torch", name=name)


def _limit(memory_mb: int) -> None:
    limit = memory_mb << 20
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def resident_mb() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() >> 20


if __name__ == "__main__":
    sys.exit(main())

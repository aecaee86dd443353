"""Real trainer processes without the price of importing torch in each: forks of one that has it.

    with Zygote() as zygote:
        attempt = zygote.start("training.trainers.fsdp", spec_file, world_size=2, log=log)
        attempt.kill(rank=1)
        codes = attempt.wait()

A fork runs the module's own entry, in a session of its own, with the environment that the node
agent gives a rank. The process that forks is started by `python -m benchmarks.training.zygote`; it
takes one request a line and answers with process numbers and exit codes.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

PRELOADED = (
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "transformers.models.llama.modeling_llama",
    "transformers.models.auto.tokenization_auto",
    "pyarrow.parquet",
    "training.trainers.fsdp",
)
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1", "TOKENIZERS_PARALLELISM": "false"}
_PATIENCE_S = 300.0


class Attempt:
    """The ranks of one job."""

    def __init__(self, zygote: Zygote, pids: list[int]) -> None:
        self._zygote = zygote
        self.pids = pids

    def kill(self, rank: int | None = None) -> None:
        """SIGKILL one rank, or all of them."""
        for pid in self.pids if rank is None else self.pids[rank : rank + 1]:
            if self._zygote.code(pid) is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    @property
    def codes(self) -> list[int | None]:
        """Exit codes, negative for a signal; None while a rank runs."""
        return [self._zygote.code(pid) for pid in self.pids]

    @property
    def is_running(self) -> bool:
        return None in self.codes

    def wait(self, timeout_s: float = _PATIENCE_S) -> list[int]:
        """Until all ranks have ended. When one fails the others are killed, as an agent does."""
        deadline = time.monotonic() + timeout_s
        while self.is_running:
            if any(self.codes):
                self._linger()
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError(f"ranks {self.pids} did not end: {self.codes}")
            time.sleep(0.005)
        return [code for code in self.codes if code is not None]

    def _linger(self, seconds: float = 1.0) -> None:
        deadline = time.monotonic() + seconds
        while self.is_running and time.monotonic() < deadline:
            time.sleep(0.005)
        self.kill()


class Zygote:
    """Starts attempts. `modules` are loaded beforehand, beside those of every trainer."""

    def __init__(self, modules: tuple[str, ...] = (), **environment: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.training.zygote", *PRELOADED, *modules],
            cwd=Path(__file__).resolve().parents[2],
            env={**os.environ, **ENVIRONMENT, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._started: queue.Queue[int] = queue.Queue()
        self._codes: dict[int, int] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_PATIENCE_S)

    def start(
        self, module: str, spec: Path, *, world_size: int, log: Path, **environment: str
    ) -> Attempt:
        """Start the ranks of `module` on `spec`; they append what they say to `log`."""
        shared = {
            "WORLD_SIZE": str(world_size),
            "LOCAL_WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            **environment,
        }
        pids = []
        for rank in range(world_size):
            own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            self._ask({"module": module, "spec": str(spec), "log": str(log), "environment": own})
            pids.append(self._next_pid())
        return Attempt(self, pids)

    def code(self, pid: int) -> int | None:
        """How a rank ended; None while it runs."""
        return self._codes.get(pid)

    def _next_pid(self) -> int:
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                return self._started.get(timeout=0.5)
            if self._process.poll() is not None:
                raise RuntimeError(f"the zygote ended with {self._process.returncode}")
        raise TimeoutError("the zygote does not answer")

    def _ask(self, request: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            if "code" in answer:
                self._codes[answer["pid"]] = answer["code"]
            else:
                self._started.put(answer["pid"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _serve(modules: list[str]) -> None:
    """Fork for each line of the input, until it ends; then end what still runs."""
    for module in modules:
        importlib.import_module(module)
    running: set[int] = set()
    waiting = b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.005)
        if readable:
            data = os.read(0, 1 << 16)
            if not data:
                break
            *lines, waiting = (waiting + data).split(b"\n")
            for line in lines:
                running.add(_fork(json.loads(line)))
        running -= _reap(running)
    for pid in running:
        os.kill(pid, signal.SIGKILL)
    while running:
        running -= _reap(running)


def _reap(running: set[int]) -> set[int]:
    ended = set()
    for pid in running:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            ended.add(pid)
            _say({"pid": pid, "code": os.waitstatus_to_exitcode(status)})
    return ended


def _fork(request: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        _say({"pid": pid})
        return pid
    code = 1
    try:
        code = _run(request)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _run(request: dict[str, Any]) -> int:
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(request["environment"])
    from training.trainers import entry

    sys.argv = [request["module"], request["spec"]]
    return entry.main(importlib.import_module(request["module"]).train)


def _say(answer: dict[str, Any]) -> None:
    os.write(1, json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    _serve(sys.argv[1:])
    os._exit(0)  # taking torch apart again takes seconds

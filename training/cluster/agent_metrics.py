"""What a node agent knows of its ranks, served over HTTP as Prometheus reads it.

    server = MetricsServer(host, wish, targets, folder, node)
    server.answer(lambda: figures)                       # each tick of the agent's own loop
    server.close()

In: the agent's figures. Out: `GET /metrics` on a port of the node's address, and while it is served
a file in `targets` that tells Prometheus where (`training.cluster.metrics_targets`).

Served from the agent's loop without ever waiting, since the agent must have one thread (it forks
ranks with `preexec_fn`). Nobody has to prove who they are: it tells steps and names of runs and
nodes to whoever reaches the port. One request a connection; no TLS, no compression.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from training.cluster.heartbeat import Section
from training.cluster.metrics_targets import place_of, target_file
from workspace import publish

if TYPE_CHECKING:
    from prometheus_client.core import Metric

FIRST_PORT = 19_000  # below those where ranks meet; jobs begin to look at one of 900 from here
TRIED = 100  # ports, from the wished one on: several nodes may be one machine

_CLIENTS = 8  # at a time; more wait in the kernel
_REQUEST_BYTES = 8192
_PATIENCE_S = 5.0  # with one that is slow to ask or to read
_STATES = ("R", "S", "D", "T", "Z", "X")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_REQUEST = re.compile(rb"(GET|HEAD) (/[^ ?]*)(\?[^ ]*)? HTTP/1\.[01]\r?\n")


class RankFigures(NamedTuple):
    """One rank now. `section` None: it has said nothing yet; `resident` None: it has ended."""

    rank: int
    state: str  # the letter of /proc
    section: Section | None
    silent_s: float
    step: int
    resident: int | None  # bytes


class AgentFigures(NamedTuple):
    """All of a node. `generation` 0: no rank was started here (a spare)."""

    generation: int
    ranks: tuple[RankFigures, ...]


def resident_bytes(pid: int) -> int | None:
    """Resident memory of one process, None when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return None


def families(labels: dict[str, str], figures: AgentFigures) -> Iterator[Metric]:
    """The figures as metrics. Each sample has all of `labels`."""
    from prometheus_client.core import GaugeMetricFamily

    names, values = list(labels), list(labels.values())

    def of_agent(name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(f"dsm_agent_{name}", text, labels=names)
        family.add_metric(values, value)
        return family

    def of_ranks(
        name: str, text: str, samples: Iterable[tuple[int, str, float]], label: str = ""
    ) -> Metric:
        extra = [label] if label else []
        family = GaugeMetricFamily(f"dsm_rank_{name}", text, labels=[*names, "rank", *extra])
        for rank, word, value in samples:
            family.add_metric([*values, str(rank), *([word] if label else [])], value)
        return family

    ranks = figures.ranks
    spoken = [one for one in ranks if one.section is not None]
    yield of_agent("generation", "Generation of the node's ranks; 0: none yet", figures.generation)
    yield of_agent("ranks", "Ranks that run on the node", sum(r.state != "X" for r in ranks))
    yield of_ranks("step", "Last step that ended", ((r.rank, "", r.step) for r in spoken))
    yield of_ranks(
        "silence_seconds",
        "Seconds since the rank's last word",
        ((r.rank, "", r.silent_s) for r in spoken),
    )
    yield of_ranks(
        "section",
        "1 for what the rank does",
        ((r.rank, s.name.lower(), float(r.section is s)) for r in spoken for s in Section),
        "section",
    )
    yield of_ranks(
        "process_state",
        "1 for the state of the rank's process; X: it has ended",
        (
            (r.rank, state, float(r.state == state))
            for r in ranks
            for state in dict.fromkeys((*_STATES, r.state))
        ),
        "state",
    )
    yield of_ranks(
        "resident_memory_bytes",
        "Resident memory of the rank's own process",
        ((r.rank, "", r.resident) for r in ranks if r.resident is not None),
    )


class MetricsServer:
    """Listens from the beginning, answers when `answer` is called. Raises `OSError` without a port
    or a place for its file, `ImportError` without the library."""

    def __init__(self, host: str, wish: int, targets: Path, folder: Path, node: str) -> None:
        import prometheus_client.exposition  # noqa: F401 - 60 ms, before there are ranks

        self.labels = {**place_of(folder), "node": node}
        self._clients: list[_Client] = []
        self._socket = _listen(host, wish)
        self.port = int(self._socket.getsockname()[1])
        self._target = target_file(targets, folder, node)
        try:
            self._tell(targets, f"{host}:{self.port}")
        except OSError:
            self._socket.close()
            raise

    def answer(self, figures: Callable[[], AgentFigures]) -> None:
        """Whoever asked; waits for nobody."""
        self._admit()
        for client in list(self._clients):
            if client.advance(lambda: self._page(figures())):
                client.socket.close()
                self._clients.remove(client)

    def close(self) -> None:
        for client in self._clients:
            client.socket.close()
        self._socket.close()
        with contextlib.suppress(OSError):  # the next attempt's coordinator will
            self._target.unlink(missing_ok=True)

    def _tell(self, targets: Path, address: str) -> None:
        targets.mkdir(parents=True, exist_ok=True)
        publish.write_json(self._target, [{"targets": [address], "labels": self.labels}])

    def _page(self, figures: AgentFigures) -> bytes:
        from prometheus_client.exposition import generate_latest

        return generate_latest(_Collected(list(families(self.labels, figures))))

    def _admit(self) -> None:
        while len(self._clients) < _CLIENTS:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return  # nobody there, or gone again
            accepted.setblocking(False)
            self._clients.append(_Client(accepted, time.monotonic() + _PATIENCE_S))


class _Collected(NamedTuple):
    """What `generate_latest` calls a registry."""

    metrics: list[Metric]

    def collect(self) -> list[Metric]:
        return self.metrics


@dataclass
class _Client:
    """One connection: a request that comes in pieces, then an answer that leaves in pieces."""

    socket: socket.socket
    deadline: float
    request: bytes = b""
    answer: bytes | None = None

    def advance(self, page: Callable[[], bytes]) -> bool:
        """As far as can be without waiting; True when it is over."""
        try:
            if self.answer is None:
                self._receive()
                if not _is_whole(self.request):
                    return self._late()
                self.answer = _response(self.request, page)
            self.answer = self.answer[self.socket.send(self.answer) :]
        except BlockingIOError:
            return self._late()
        except OSError:
            return True
        return not self.answer or self._late()

    def _receive(self) -> None:
        received = self.socket.recv(_REQUEST_BYTES)
        if not received:
            raise ConnectionAbortedError
        self.request += received

    def _late(self) -> bool:
        return time.monotonic() > self.deadline


def _is_whole(request: bytes) -> bool:
    ended = b"\r\n\r\n" in request or b"\n\n" in request
    return ended or len(request) > _REQUEST_BYTES


def _response(request: bytes, page: Callable[[], bytes]) -> bytes:
    asked = _REQUEST.match(request)
    if asked is None or len(request) > _REQUEST_BYTES:
        return _http("400 Bad Request", b"GET /metrics\n")
    if asked[2] != b"/metrics":
        return _http("404 Not Found", b"see /metrics\n")
    from prometheus_client.exposition import CONTENT_TYPE_LATEST

    try:
        body = page()
    except Exception as error:  # the ranks outlive a fault of this module; Prometheus shows it
        return _http("500 Internal Server Error", f"{type(error).__name__}: {error}\n".encode())
    return _http("200 OK", body, CONTENT_TYPE_LATEST, with_body=asked[1] == b"GET")


def _http(
    status: str, body: bytes, kind: str = "text/plain; charset=utf-8", *, with_body: bool = True
) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode("ascii") + (body if with_body else b"")


def _listen(host: str, wish: int) -> socket.socket:
    """On `wish` or the next port that is free; held from here on, so nobody takes it meanwhile."""
    for port in range(wish, min(wish + TRIED, 65_536)):
        with contextlib.suppress(OSError):
            made = socket.create_server((host, port), backlog=_CLIENTS)
            made.setblocking(False)
            return made
    raise OSError(f"no port for metrics on {host} from {wish} on")


def wished_port(job_id: int) -> int:
    """Where the agents of a job begin to look for a free port."""
    return FIRST_PORT + job_id * 11 % 900

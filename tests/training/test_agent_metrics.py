"""What Prometheus is told of real ranks, over HTTP, while they run."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from ranks_on_this_machine import Job

from training.cluster.agent_metrics import (
    FIRST_PORT,
    TRIED,
    AgentFigures,
    MetricsServer,
    RankFigures,
    wished_port,
)
from training.cluster.heartbeat import Section
from training.cluster.job_plan import agent_command, parse
from training.cluster.metrics_targets import target_file, targets_of

# Says what it does, then waits for the file `leave`.
RANK = """
import os, pathlib, sys, time
from training.cluster.heartbeat import Section, of_this_rank
leave, beat, rank = pathlib.Path(sys.argv[1]), of_this_rank(), int(os.environ["RANK"])
held = bytearray(64 << 20) if rank == 0 else None
beat.section(Section.STEP)
beat.step(7 + rank, own_s=0.5)
if rank == 1: beat.section(Section.CHECKPOINT)
print("ready", flush=True)
while not leave.exists(): time.sleep(0.02)
"""
Labels = frozenset[tuple[str, str]]


class Site:
    """A job with two ranks a node, whose agents serve."""

    def __init__(self, folder: Path, **layout: int) -> None:
        self.folder = folder / "runs" / "chips" / "sft" / "attempts" / "1"
        self.targets = folder / "metrics-targets"
        self.leave = folder / "leave"
        self.job = Job(
            self.folder, "-c", RANK, str(self.leave), metrics_targets=self.targets, **layout
        ).start()
        ranks = layout.get("nodes", 1) * layout.get("processes", 2)
        self.job.until(lambda: all("ready" in self.job.log(r) for r in range(ranks)), "ready")

    def address(self, node: str) -> str:
        [entry] = json.loads(target_file(self.targets, self.folder, node).read_text())
        [address] = entry["targets"]
        return str(address)

    def page(self, node: str = "n0") -> str:
        with urllib.request.urlopen(f"http://{self.address(node)}/metrics", timeout=20) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=")
            return str(answer.read().decode("utf-8"))

    def values(self, node: str = "n0") -> dict[str, dict[Labels, float]]:
        """By metric, then by all labels."""
        found: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(self.page(node)):
            for sample in family.samples:
                found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
        return found

    def rank(self, metric: str, rank: int, node: str = "n0", **labels: str) -> float:
        wanted = {("rank", str(rank)), *labels.items()}
        [value] = [v for known, v in self.values(node)[metric].items() if wanted <= known]
        return value

    def end(self) -> int:
        self.leave.touch()
        return self.job.wait()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.end()


def agent_of(site: Site, node: str = "n0") -> int:
    [agent] = [
        pid
        for pid in site.job.pids(node, ranks=False)
        if "node_agent" in Path(f"/proc/{pid}/cmdline").read_text()
    ]
    return agent


def test_what_ranks_said_and_what_the_kernel_says_of_them(site: Site) -> None:
    values = site.values()
    place = {("run", "chips"), ("stage", "sft"), ("attempt", "1"), ("node", "n0")}
    assert all(place <= labels for samples in values.values() for labels in samples)
    assert [site.rank("dsm_rank_step", rank) for rank in (0, 1)] == [7, 8]
    for rank, now in ((0, "step"), (1, "checkpoint")):
        doing = {s: site.rank("dsm_rank_section", rank, section=s.name.lower()) for s in Section}
        assert {s.name.lower() for s, value in doing.items() if value} == {now}
    assert site.rank("dsm_rank_process_state", 0, state="S") == 1
    assert site.rank("dsm_rank_process_state", 0, state="X") == 0
    first, second = (site.rank("dsm_rank_resident_memory_bytes", rank) for rank in (0, 1))
    assert first - second > 32 << 20, "it holds 64 MiB"
    assert list(values["dsm_agent_generation"].values()) == [1]
    assert list(values["dsm_agent_ranks"].values()) == [2]


def test_resident_memory_is_that_of_proc(site: Site) -> None:
    memory = {}
    for pid in site.job.pids("n0", ranks=True):
        status = Path(f"/proc/{pid}/status").read_text()
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        rank = int(environment.split(b"\0RANK=")[1].split(b"\0")[0])
        memory[rank] = int(status.split("VmRSS:")[1].split()[0]) * 1024
    for rank, resident in memory.items():
        shown = site.rank("dsm_rank_resident_memory_bytes", rank)
        assert shown == pytest.approx(resident, rel=0.02)


def test_silence_is_counted_from_the_last_word(site: Site) -> None:
    before, began = site.rank("dsm_rank_silence_seconds", 0), time.monotonic()
    time.sleep(1.5)
    after = site.rank("dsm_rank_silence_seconds", 0)
    assert after - before == pytest.approx(time.monotonic() - began, abs=1.0)


def test_a_stopped_process_is_shown_as_such(site: Site) -> None:
    [pid] = [
        p
        for p in site.job.pids("n0", ranks=True)
        if b"\0RANK=1\0" in Path(f"/proc/{p}/environ").read_bytes()
    ]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert site.rank("dsm_rank_process_state", 1, state="T") == 1
    finally:
        os.kill(pid, signal.SIGCONT)


def test_nodes_on_one_machine_serve_side_by_side_and_leave_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes=2, processes=1)
    ports = [int(site.address(node).rpartition(":")[2]) for node in ("n0", "n1")]
    assert len(set(ports)) == 2
    assert all(FIRST_PORT <= port < FIRST_PORT + 1000 for port in ports)
    assert site.rank("dsm_rank_step", 1, node="n1") == 8
    [entry] = json.loads(target_file(site.targets, site.folder, "n1").read_text())
    assert entry["labels"] == {"run": "chips", "stage": "sft", "attempt": "1", "node": "n1"}
    assert site.end() == 0
    assert list(site.targets.iterdir()) == []
    for port in ports:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)


def test_a_new_generation_shows(tmp_path: Path) -> None:
    site = Site(tmp_path, processes=1, restarts=1)
    os.kill(site.job.pids("n0", ranks=True)[0], signal.SIGKILL)
    site.job.until(
        lambda: list(site.values()["dsm_agent_generation"].values()) == [2], "started again"
    )
    site.end()


def test_the_agent_keeps_one_thread(site: Site) -> None:
    """It forks ranks with `preexec_fn`, which is safe in such a process alone."""
    site.page()
    assert len(list(Path(f"/proc/{agent_of(site)}/task").iterdir())) == 1


def ask(address: str, request: bytes) -> bytes:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request)
        answer = b""
        while received := connection.recv(65536):
            answer += received
    return answer


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", b"200"),
        (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", b"200"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404"),
        (b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n", b"404"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x00\xff\n\n", b"400"),
        (b"GET /" + b"a" * 8300, b"400"),
    ],
)
def test_requests(site: Site, request_: bytes, status: bytes) -> None:
    head, _, body = ask(site.address("n0"), request_).partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert bool(body) is not request_.startswith(b"HEAD")


def test_who_says_nothing_holds_up_neither_ranks_nor_others(site: Site) -> None:
    host, _, port = site.address("n0").rpartition(":")
    silent = [socket.create_connection((host, int(port)), timeout=20) for _ in range(7)]
    silent[0].sendall(b"GET /met")
    began = time.monotonic()
    site.page()
    assert time.monotonic() - began < 4, "before the silent ones are given up"
    for connection in silent:
        assert connection.recv(1) == b"", "given up"
        connection.close()
    assert not site.job.events("node_lost")


def test_a_request_may_come_in_pieces(site: Site) -> None:
    host, _, port = site.address("n0").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        for piece in (b"GET /metr", b"ics HTTP/1.1\r", b"\nHost: x\r\n", b"\r\n"):
            connection.sendall(piece)
            time.sleep(0.15)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 200 and b"dsm_rank_step" in answer.read()


@pytest.mark.parametrize("kind", ["file", "unwritable"])
def test_ranks_train_where_metrics_cannot_be_served(
    tmp_path: Path, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    targets = tmp_path / "targets"
    targets.touch()
    place = targets if kind == "file" else targets / "below"
    assert Job(tmp_path / "1", "-c", "pass", metrics_targets=place).start().wait() == 0
    assert "n0: serves no metrics: " in capfd.readouterr().out


def test_a_fault_of_the_figures_is_an_answer(tmp_path: Path) -> None:
    server = MetricsServer("127.0.0.1", FIRST_PORT, tmp_path, tmp_path / "1", "n0")
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        time.sleep(0.2)
        server.answer(lambda: AgentFigures(1, None))  # type: ignore[arg-type]
        assert connection.recv(100).startswith(b"HTTP/1.1 500 ")
    server.close()


def test_an_answer_larger_than_the_sockets_buffer_leaves_in_pieces(tmp_path: Path) -> None:
    ranks = tuple(RankFigures(n, "S", Section.STEP, 1.0, n, 1) for n in range(2000))
    server = MetricsServer("127.0.0.1", FIRST_PORT, tmp_path, tmp_path / "1", "n0")
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
        connection.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        connection.setblocking(False)
        page, deadline = b"", time.monotonic() + 30
        while True:
            assert time.monotonic() < deadline
            server.answer(lambda: AgentFigures(1, ranks))
            try:
                received = connection.recv(1 << 16)
            except BlockingIOError:
                continue
            if not received:
                break
            page += received
    server.close()
    head, _, body = page.partition(b"\r\n\r\n")
    assert len(body) > 1 << 20 and f"Content-Length: {len(body)}".encode() in head
    families = {f.name: f for f in text_string_to_metric_families(body.decode())}
    assert len(families["dsm_rank_step"].samples) == 2000


def test_a_port_in_use_is_passed_over(tmp_path: Path) -> None:
    first = MetricsServer("127.0.0.1", wished_port(17), tmp_path, tmp_path / "1", "n0")
    second = MetricsServer("127.0.0.1", first.port, tmp_path, tmp_path / "1", "n1")
    assert first.port < second.port < first.port + TRIED
    first.close()
    second.close()
    assert all(FIRST_PORT <= wished_port(job) < FIRST_PORT + 900 for job in range(5000))


def test_what_dead_nodes_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    attempts = tmp_path / "runs" / "a" / "sft" / "attempts"
    other = tmp_path / "runs" / "b" / "sft" / "attempts"
    targets = tmp_path / "targets"
    targets.mkdir()

    def left(folder: Path, node: str) -> Path:
        path = target_file(targets, folder, node)
        path.write_text("[]")
        return path

    older, foreign, later = left(attempts / "1", "n0"), left(other / "1", "n0"), left(
        attempts / "20", "n0"
    )  # fmt: skip
    with targets_of(targets, attempts / "2"):
        assert not older.exists()
        own = left(attempts / "2", "n0-1")
    assert not own.exists()
    assert foreign.exists() and later.exists()


def test_a_node_that_dies_leaves_its_file_to_the_coordinator(tmp_path: Path) -> None:
    site = Site(tmp_path, nodes=2, processes=1)
    with targets_of(site.targets, site.folder):
        site.job.kill_node("n1")
        assert site.job.wait() == 1
        assert target_file(site.targets, site.folder, "n1").exists()
        assert not target_file(site.targets, site.folder, "n0").exists()
    assert list(site.targets.iterdir()) == []


def test_the_coordinator_passes_on_where_to_tell(tmp_path: Path) -> None:
    words = ["--attempt-dir", str(tmp_path), "--node-names", "a", "--nodes", "1", "--processes"]
    plain = agent_command(parse([*words, "1", "--", "-c", "pass"]))
    assert not any(word.startswith("--metrics") for word in plain)
    chosen = parse(
        [*words, "1", "--metrics-targets", "/t", "--metrics-port", "9", "--", "-c", "pass"]
    )
    command = " ".join(agent_command(chosen))
    assert "--metrics-targets /t --metrics-port 9 -- -c pass" in command


def tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"needs {name}: apt-get install --no-install-recommends prometheus")
    return found


def test_prometheus_own_check_finds_nothing_to_say(site: Site) -> None:
    done = subprocess.run(
        [tool("promtool"), "check", "metrics"],
        input=site.page(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


CONFIG = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: dsm
    honor_labels: true
    file_sd_configs: [{{files: ["{targets}/dsm-*.json"], refresh_interval: 1s}}]
"""


def test_a_real_prometheus_finds_and_reads_the_node(site: Site, tmp_path: Path) -> None:
    program = tool("prometheus")
    config = tmp_path / "prometheus.yml"
    config.write_text(CONFIG.format(targets=site.targets))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            program, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        found = query_until_answered(f"http://127.0.0.1:{port}/api/v1/query?query=dsm_rank_step")
    finally:
        server.kill()
        server.wait()
    labels = found[0]["metric"]
    assert {name: labels[name] for name in ("job", "run", "stage", "attempt", "node")} == {
        "job": "dsm", "run": "chips", "stage": "sft", "attempt": "1", "node": "n0",
    }  # fmt: skip
    assert not any(name.startswith("exported_") for name in labels)
    assert {entry["metric"]["rank"]: entry["value"][1] for entry in found} == {"0": "7", "1": "8"}


def query_until_answered(address: str) -> list[dict[str, dict[str, str]]]:
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                found: list[dict[str, dict[str, str]]] = json.load(answer)["data"]["result"]
        except OSError:
            found = []
        if found:
            return found
        assert time.monotonic() < deadline, "Prometheus never read the node"
        time.sleep(0.3)

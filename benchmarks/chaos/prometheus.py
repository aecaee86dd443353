"""A real Prometheus over the cluster's node agents, with the project's alert rules sped up.

    with Prometheus(folder, targets).runs() as server:
        server.firing()                       # {("DsmAgentDown", "soak-7"), ...}
        server.query("dsm_rank_step")         # label sets and values

The rules are those of `monitoring/alerts.yml` with every duration a sixtieth of what it says, so
that minutes pass in seconds; Prometheus looks once a second.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.chaos.lab import LabError
from benchmarks.chaos.supervisor import REPOSITORY
from benchmarks.training.zygote import free_port

RULES = REPOSITORY / "monitoring" / "alerts.yml"
_SHORTER = {"h": "m", "m": "s"}


def rules() -> list[dict[str, Any]]:
    """As they are shipped."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def sped_up(rule: dict[str, Any]) -> dict[str, Any]:
    """The same rule with its durations a sixtieth as long."""
    faster = {**rule, "expr": re.sub(r"\[(\d+[hm])\]", _sixtieth_of, rule["expr"])}
    if "for" in rule:
        faster["for"] = _sixtieth(rule["for"])
    return faster


def count_accepted() -> int:
    """Of the shipped rules' expressions, those that promtool takes."""
    done = subprocess.run(
        [_program("promtool"), "check", "rules", str(RULES)], capture_output=True, text=True
    )
    found = re.search(r"SUCCESS: (\d+) rules? found", done.stdout)
    if done.returncode or found is None:
        print(done.stdout + done.stderr, flush=True)
        return 0
    return int(found[1])


class Prometheus:
    """In a folder of its own; reads the files of agents in `targets`."""

    def __init__(self, folder: Path, targets: Path) -> None:
        self._folder = folder
        self._targets = targets
        self._address = f"127.0.0.1:{free_port()}"

    @contextmanager
    def runs(self) -> Iterator[Prometheus]:
        """It answers inside the block, and is ended after."""
        self._folder.mkdir(parents=True)
        self._targets.mkdir(parents=True, exist_ok=True)
        self._configure()
        command = [
            _program("prometheus"), f"--config.file={self._folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={self._folder / 'data'}",
            f"--web.listen-address={self._address}",
        ]  # fmt: skip
        with (self._folder / "log").open("wb") as log:
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            self._await(server)
            yield self
        finally:
            server.kill()
            server.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an expression has now."""
        text = urllib.parse.urlencode({"query": expression})
        found: list[dict[str, Any]] = self._get(f"/api/v1/query?{text}")["data"]["result"]
        return found

    def firing(self) -> set[tuple[str, str]]:
        """Alert and run of all that fire now."""
        alerts = self._get("/api/v1/alerts")["data"]["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("run", ""))
            for alert in alerts
            if alert["state"] == "firing"
        }

    def _configure(self) -> None:
        job = {
            "job_name": "dsm",
            "honor_labels": True,
            "file_sd_configs": [
                {"files": [f"{self._targets}/dsm-*.json"], "refresh_interval": "1s"}
            ],
        }
        config = {
            "global": {
                "scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s",
            },
            "rule_files": ["rules.yml"],
            "scrape_configs": [job],
        }  # fmt: skip
        group = {"name": "dsm", "rules": [sped_up(rule) for rule in rules()]}
        (self._folder / "rules.yml").write_text(yaml.safe_dump({"groups": [group]}))
        (self._folder / "prometheus.yml").write_text(yaml.safe_dump(config))

    def _await(self, server: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + 60
        while True:
            try:
                self._open("/-/ready")
                return
            except (urllib.error.URLError, ConnectionError):  # not yet
                if server.poll() is not None or time.monotonic() > deadline:
                    said = (self._folder / "log").read_text(errors="replace")[-1500:]
                    raise LabError(f"prometheus does not come up: {said}") from None
                time.sleep(0.2)

    def _get(self, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self._open(path))
        return found

    def _open(self, path: str) -> bytes:
        with urllib.request.urlopen(f"http://{self._address}{path}", timeout=20) as answer:
            body: bytes = answer.read()
            return body


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise LabError(f"needs {name}: apt-get install --no-install-recommends prometheus")
    return found


def _sixtieth_of(match: re.Match[str]) -> str:
    return f"[{_sixtieth(match[1])}]"


def _sixtieth(duration: str) -> str:
    """`15m` is `15s`, `1h` is `1m`. Raises `ValueError` for what is no whole minutes or hours."""
    number, unit = re.fullmatch(r"(\d+)([a-z]+)", duration).groups()  # type: ignore[union-attr]
    if unit not in _SHORTER:
        raise ValueError(f"a sixtieth of {duration} is no whole number of seconds")
    return number + _SHORTER[unit]

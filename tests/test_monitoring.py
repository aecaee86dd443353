"""The alert rules: Prometheus takes them, they name what is served, and fire when they should."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from benchmarks.chaos.prometheus import sped_up
from training.cluster.agent_metrics import AgentFigures, RankFigures, families
from training.cluster.heartbeat import Section

RULES = Path(__file__).resolve().parent.parent / "monitoring" / "alerts.yml"


def rules() -> dict[str, dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("needs promtool: apt-get install --no-install-recommends prometheus")
    return subprocess.run([found, *arguments], capture_output=True, text=True, timeout=60)


def test_rules_speak_of_what_is_served() -> None:
    figures = AgentFigures(1, (RankFigures(0, "R", Section.STEP, 1.0, 2, 3),))
    place = {"run": "a", "stage": "sft", "attempt": "1", "node": "n"}
    served = {family.name: family for family in families(place, figures)}
    for rule in rules().values():
        for name in re.findall(r"dsm_\w+", rule["expr"]):
            assert name in served
            labels = set(served[name].samples[0].labels) | {"job"}
            used = re.findall(r"\{(\w+)=", rule["expr"]) + re.findall(
                r"\$labels\.(\w+)", rule["annotations"]["summary"]
            )
            assert set(used) <= labels | {"rank", "state", "section"}


def test_prometheus_takes_the_rules() -> None:
    done = promtool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stdout + done.stderr


PLACE = 'run="chips",stage="sft",attempt="1",node="n0"'
# alert -> series that call for it, and series that do not (60 samples, one a minute).
CASES = {
    "DsmAgentDown": (
        [('up{job="dsm",node="n0"}', "0x60")],
        [('up{job="dsm",node="n0"}', "1x50 0x3 1x10"), ('up{job="node"}', "0x60")],
    ),
    "DsmStepsStandStill": (
        [
            (f'dsm_rank_section{{{PLACE},rank="0",section="step"}}', "1x60"),
            (f'dsm_rank_step{{{PLACE},rank="0"}}', "7x60"),
        ],
        [
            (f'dsm_rank_section{{{PLACE},rank="0",section="step"}}', "1x60"),
            (f'dsm_rank_step{{{PLACE},rank="0"}}', "7+1x60"),
        ],
    ),
    "DsmRankStuckInKernel": (
        [(f'dsm_rank_process_state{{{PLACE},rank="0",state="D"}}', "1x60")],
        [(f'dsm_rank_process_state{{{PLACE},rank="0",state="D"}}', "0 1 0 1 0 1x5 0x50")],
    ),
    "DsmRanksKeepRestarting": (
        [(f"dsm_agent_generation{{{PLACE}}}", "1x10 2x10 3x10 4x10 5x10 6x10")],
        [(f"dsm_agent_generation{{{PLACE}}}", "1x30 2x30")],
    ),
}


def test_each_rule_has_its_case() -> None:
    assert set(CASES) == set(rules())


@pytest.mark.parametrize("alert", CASES)
@pytest.mark.parametrize("called_for", [True, False])
def test_rules_fire_when_they_should_and_only_then(
    tmp_path: Path, alert: str, called_for: bool
) -> None:
    series = CASES[alert][0 if called_for else 1]
    expression = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    wanted = [{"labels": "{}", "value": 1}] if called_for else []
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series],
        "promql_expr_test": [{"expr": expression, "eval_time": "59m", "exp_samples": wanted}],
    }
    written = tmp_path / "case.yml"
    written.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": [case]}))
    done = promtool("test", "rules", str(written))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_chaos_suite_speeds_up_time_and_nothing_else() -> None:
    rule = {"alert": "A", "expr": "max(changes(a[1h])) > 3 and b{m='5m'}", "for": "15m"}
    faster = {"alert": "A", "expr": "max(changes(a[1m])) > 3 and b{m='5m'}", "for": "15s"}
    assert sped_up(rule) == faster
    with pytest.raises(ValueError, match="90s"):
        sped_up({"expr": "a", "for": "90s"})

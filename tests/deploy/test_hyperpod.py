"""The lifecycle scripts for HyperPod, dry: what each kind of instance would have done to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.cluster.health.config import HealthConfig

HYPERPOD = Path(__file__).resolve().parents[2] / "deploy" / "hyperpod"
PARAMETERS: dict[str, Any] = json.loads((HYPERPOD / "provisioning_parameters.json").read_text())
ADDRESSES = {"controller": ["10.0.0.10"], "login": ["10.0.0.11"], "gpu": ["10.0.1.1", "10.0.1.2"]}
SOURCE = f"{PARAMETERS['fsx_dns_name']}@tcp:/{PARAMETERS['fsx_mountname']}"


class Instance:
    """An instance's files, in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("resource_config.json", json.dumps(
            {"InstanceGroups": [
                {"Name": name, "Instances": [
                    {"InstanceName": f"{name}-{n}", "CustomerIpAddress": address}
                    for n, address in enumerate(addresses, 1)
                ]} for name, addresses in ADDRESSES.items()
            ]}
        ))  # fmt: skip
        self.parameters({})
        self.write("mounts", "proc /proc proc rw 0 0\n")
        self.write("fstab", "UUID=1 / ext4 defaults 0 1\n")
        self.write("slurm.conf", "ClusterName=x\nSlurmctldHost=a(10.0.0.10)\n")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def parameters(self, changes: dict[str, Any]) -> None:
        self.write("provisioning_parameters.json", json.dumps({**PARAMETERS, **changes}))

    def create(self, address: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(HYPERPOD / "on_create.sh"), *options],
            env={
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "SAGEMAKER_RESOURCE_CONFIG_PATH": str(self.folder / "resource_config.json"),
                "PROVISIONING_PARAMETERS": str(self.folder / "provisioning_parameters.json"),
                "SLURM_CONF": str(self.folder / "slurm.conf"),
                "DSM_FSTAB": str(self.folder / "fstab"),
                "DSM_MOUNTS": str(self.folder / "mounts"),
                # The loopback comes first on some machines, and is in no group.
                "DSM_ADDRESS": f"127.0.0.1 {address}",
            },
            capture_output=True,
            text=True,
            timeout=60,
        )

    def would(self, address: str) -> str:
        done = self.create(address, "--dry-run")
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def instance(tmp_path: Path) -> Instance:
    return Instance(tmp_path)


def block(shown: str, file: str) -> str:
    """The content that would be written to a file."""
    lines = shown.partition(f"would write {file}:\n")[2].splitlines()
    kept = []
    for line in lines:
        if not line.startswith("    "):
            break
        kept.append(line[4:])
    return "\n".join(kept)


def test_a_compute_node(instance: Instance) -> None:
    shown = instance.would("10.0.1.2")
    assert "this is a compute of group gpu" in shown
    assert f"would run: mount -t lustre -o noatime\\,flock {SOURCE} /fsx" in shown
    assert f"{SOURCE} /fsx lustre noatime,flock,_netdev 0 0" in block(
        shown, str(instance.folder / "fstab")
    )
    health = HealthConfig.parse(
        yaml.safe_load(block(shown, "/etc/dsm/health.yaml")), origin="health.yaml"
    )
    assert health.gpus == 8 and health.shared == health.mounts == (Path("/fsx"),)
    assert (health.isolate_state, health.isolate_reason) == ("DOWN", "Action:Replace")
    assert "SLURMD_OPTIONS=--conf-server 10.0.0.10" in shown
    assert "would run: systemctl enable --now slurmd\n" in shown
    assert "nvidia-dcgm-exporter" in shown and "slurmctld" not in shown


def test_the_controller(instance: Instance) -> None:
    shown = instance.would("10.0.0.10")
    conf = block(shown, str(instance.folder / "slurm.conf"))
    assert conf.startswith("ClusterName=x\nSlurmctldHost=a(10.0.0.10)\n")
    assert "HealthCheckProgram=/usr/local/sbin/dsm-health-program" in conf
    assert "would run: systemctl enable --now slurmctld" in shown
    scraped = yaml.safe_load(block(shown, "/etc/prometheus/prometheus.yml"))
    targets = {
        job["job_name"]: job["static_configs"][0]["targets"]
        for job in scraped["scrape_configs"]
        if "static_configs" in job
    }
    assert targets == {
        "node": ["10.0.0.10:9100", "10.0.1.1:9100", "10.0.1.2:9100"],
        "dcgm": ["10.0.1.1:9400", "10.0.1.2:9400"],
        "slurm": ["10.0.0.10:6817"],
    }
    [agents] = [job for job in scraped["scrape_configs"] if job["job_name"] == "dsm"]
    assert agents["file_sd_configs"][0]["files"] == ["/fsx/metrics-targets/dsm-*.json"]
    assert agents["honor_labels"], "run and node are in the metrics themselves"
    assert "would run: install -d -m 1777 /fsx/metrics-targets\n" in shown
    assert scraped["rule_files"] == ["/fsx/dsm-pipeline/monitoring/*.yml"]


def test_prometheus_takes_its_configuration(instance: Instance, tmp_path: Path) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("needs promtool: apt-get install --no-install-recommends prometheus")
    instance.parameters({"dsm": {**PARAMETERS["dsm"], "project": str(HYPERPOD.parents[1])}})
    written = tmp_path / "prometheus.yml"
    written.write_text(block(instance.would("10.0.0.10"), "/etc/prometheus/prometheus.yml"))
    done = subprocess.run(
        [promtool, "check", "config", str(written)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "alerts.yml\n  SUCCESS: 4 rules found" in done.stdout


def test_a_login_node_runs_no_jobs_and_no_checks(instance: Instance) -> None:
    shown = instance.would("10.0.0.11")
    assert "this is a login of group login" in shown
    assert "health" not in shown


def test_a_dry_run_changes_nothing(instance: Instance) -> None:
    before = {path: path.read_text() for path in instance.folder.iterdir()}
    instance.would("10.0.0.10")
    assert {path: path.read_text() for path in instance.folder.iterdir()} == before


def test_without_fsx_somebody_else_mounts(instance: Instance) -> None:
    instance.parameters({"fsx_dns_name": "", "dsm": {"replace_nodes": False}})
    shown = instance.would("10.0.1.1")
    assert "mounted by somebody else" in shown and "mount -t" not in shown
    assert "isolate" not in shown and "prometheus" not in shown


def test_a_mounted_file_system_stays(instance: Instance) -> None:
    instance.write("mounts", f"{SOURCE} /fsx lustre rw,flock 0 0\n")
    assert "mount -t" not in instance.would("10.0.1.1")
    instance.write("mounts", "other@tcp:/x /fsx lustre rw,flock 0 0\n")
    done = instance.create("10.0.1.1", "--dry-run")
    assert done.returncode == 1 and "/fsx holds other@tcp:/x" in done.stderr


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"workload_manager": "eks"}, "workload_manager is 'eks'"),
        ({"controller_group": "head"}, "controller_group is 'head'"),
        ({"worker_groups": [{"instance_group_name": "cpu"}]}, "worker_groups names 'cpu'"),
        ({"dsm": {"mountpoint": "/fsx"}}, "unknown field(s) mountpoint"),
    ],
)
def test_a_wrong_parameter_is_named(
    instance: Instance, changes: dict[str, Any], named: str
) -> None:
    instance.parameters(changes)
    done = instance.create("10.0.1.1", "--dry-run")
    assert done.returncode == 1 and named in done.stderr


def test_a_machine_that_is_no_instance_is_refused(instance: Instance) -> None:
    done = instance.create("192.0.2.1", "--dry-run")
    assert done.returncode == 1 and "192.0.2.1" in done.stderr
    (instance.folder / "resource_config.json").unlink()
    done = instance.create("10.0.1.1", "--dry-run")
    assert done.returncode == 1 and "no HyperPod instance" in done.stderr


def test_values_are_quoted_for_the_shell(instance: Instance) -> None:
    nasty = "/fsx/$(touch /tmp/dsm-hyperpod-pwned) 'x'"
    instance.parameters({"dsm": {"project": nasty}})
    settings = block(instance.would("10.0.1.1"), "/etc/default/dsm-health")
    done = shell(f"{settings}\nprintf '%s' \"$DSM_PROJECT\"")
    assert done.stdout == nasty
    assert not Path("/tmp/dsm-hyperpod-pwned").exists()


def shell(command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"source {HYPERPOD}/common.sh; {command}"],
        capture_output=True,
        text=True,
    )


def test_a_block_is_replaced_and_never_doubled(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("A=1\n")
    for value in ("2", "3", "3"):
        assert shell(f"put_block {conf} <<<'B={value}'").returncode == 0
    assert conf.read_text() == "A=1\n# dsm begin\nB=3\n# dsm end\n"


def test_storage_that_takes_files_and_locks_is_accepted(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    check = f"mounts={mounts} MOUNT_POINT={tmp_path}; source {HYPERPOD}/storage.sh; check_storage"
    mounts.write_text(f"x {tmp_path} lustre rw,flock 0 0\n")
    assert shell(check).returncode == 0
    mounts.write_text(f"x {tmp_path} lustre rw,localflock 0 0\n")
    done = shell(check)
    assert done.returncode == 1 and "locks of its own" in done.stderr
    done = shell(check.replace(f"MOUNT_POINT={tmp_path}", "MOUNT_POINT=/nonexistent"))
    assert done.returncode == 1 and "takes no file" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mounts"]

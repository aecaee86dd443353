"""Health checks of GPUs: NVML, DCGM and the Xids of the kernel log."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from training.cluster.health.checks import Situation, run_checks
from training.cluster.health.config import HealthConfig
from training.cluster.health.dcgm import judge_dcgm
from training.cluster.health.gpus import (
    XIDS,
    Gpu,
    Gpus,
    Xid,
    judge_gpus,
    judge_xids,
    parse_xids,
    read_gpus,
)
from training.cluster.health.processes import Scope
from training.cluster.health.results import CheckResult, Severity

OK, WARN, DRAIN, ISOLATE = Severity.OK, Severity.WARN, Severity.DRAIN, Severity.ISOLATE


FULL = Gpu(0, "H100", "0000:04:00.0", links_up=18, celsius=40, pcie_width=16, pcie_width_max=16)


def gpu(**changes: object) -> Gpu:
    from dataclasses import replace

    return replace(FULL, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "expected", "severity"),
    [
        (Gpus(""), None, OK),
        (Gpus(""), 0, OK),
        (Gpus(""), 8, DRAIN),
        (Gpus("amd"), 8, OK),
        (Gpus("nvml", (FULL,) * 8), 8, OK),
        (Gpus("nvml", (FULL,) * 7), 8, DRAIN),
        (Gpus("driver", (Gpu(0), Gpu(1))), 2, OK),
        (Gpus("nvml", (), "Driver/library version mismatch"), 8, DRAIN),
        (Gpus("nvml", (gpu(error="GPU is lost"),)), None, ISOLATE),
        (Gpus("nvml", (gpu(uncorrected=2),)), 1, ISOLATE),
        (Gpus("nvml", (gpu(remap_failed=True),)), 1, ISOLATE),
        (Gpus("nvml", (gpu(remap_pending=True),)), 1, WARN),
        (Gpus("nvml", (gpu(links_up=16, links_down=2),)), 1, DRAIN),
        (Gpus("nvml", (gpu(links_up=0, links_down=18),)), 1, OK),  # no NVLink bridge fitted
        (Gpus("nvml", (FULL, gpu(links_up=12))), 2, DRAIN),
        (Gpus("nvml", (gpu(celsius=95),)), 1, WARN),
        (Gpus("nvml", (gpu(throttled=0x40),)), 1, WARN),
        (Gpus("nvml", (gpu(throttled=0x04),)), 1, OK),  # at the power limit under load
        (Gpus("nvml", (gpu(pcie_width=8),)), 1, WARN),
    ],
)
def test_gpus(found: Gpus, expected: int | None, severity: Severity) -> None:
    assert judge_gpus(found, expected, HealthConfig()).severity is severity


def test_xids_of_the_kernels_log() -> None:
    lines = [
        "4,1034,100000000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>,"
        " GPU has fallen off the bus.\n",
        "4,1035,200000000,-;NVRM: Xid (PCI:0000:5e:00): 13, pid=17, Graphics SM Warp Exception\n",
        "6,1036,300000000,-;usb 1-1: Xid 79 is not ours\n",
    ]
    xids = parse_xids(lines, now_s=400.0)
    assert xids == [Xid("0000:3b:00", 79, 300.0), Xid("0000:5e:00", 13, 200.0)]
    verdict = judge_xids(xids, HealthConfig())
    assert verdict.severity is ISOLATE and "0000:3b:00" in verdict.detail
    assert judge_xids(xids[1:], HealthConfig()).severity is OK, "the application's own fault"
    old = [Xid("0000:3b:00", 79, 25 * 3600.0)]
    assert judge_xids(old, HealthConfig()).severity is OK


def kernel_log(tmp_path: Path, kind: str) -> Path:
    path = tmp_path / "kmsg"
    if kind == "forbidden":
        path.symlink_to(path)  # root may open all but this
    elif kind == "empty":
        path.touch()  # a device has no end
    elif kind == "unreadable":
        path.mkdir()
    return path


@pytest.mark.parametrize("kind", ["absent", "forbidden", "empty", "unreadable"])
def test_a_kernel_log_that_nobody_could_read_is_never_called_clean(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("training.cluster.health.gpus._KERNEL_LOG", kernel_log(tmp_path, kind))
    config = HealthConfig(disks=(), stuck_look_s=0)
    results = run_checks(config, Situation(Scope("n1"), lambda job, folder: False))
    xid = next(result for result in results if result.check == "xid")
    assert xid.severity is Severity.UNSEEN and xid.detail.startswith("not looked at")
    assert CheckResult.from_json(xid.as_json()).severity is Severity.UNSEEN
    assert judge_xids([], config).severity is OK
    assert OK < Severity.UNSEEN < WARN < DRAIN, "it drains no node"


@pytest.mark.parametrize("code", [48, 62, 64, 79, 95])
def test_an_xid_that_makes_results_untrustworthy_isolates(code: int) -> None:
    assert XIDS[code][0] is ISOLATE


def dcgm_document(status: str) -> str:
    tests = [
        {"name": "Deployment", "results": [{"status": "Pass"}]},
        {
            "name": "PCIe",
            "results": [{"gpu_id": "3", "status": status, "warnings": [{"warning": "replays"}]}],
        },
    ]
    document = {"DCGM Diagnostic": {"test_categories": [{"category": "Hardware", "tests": tests}]}}
    return "Successfully ran diagnostic\n" + json.dumps(document)


@pytest.mark.parametrize(
    ("printed", "severity", "word"),
    [
        (dcgm_document("Pass"), OK, "2 results"),
        (dcgm_document("Fail"), DRAIN, "PCIe: fail (replays)"),
        (dcgm_document("Warn"), WARN, "PCIe"),
        (dcgm_document("Skip"), OK, "2 results"),
        ("no host engine", WARN, "no JSON"),
        ("{}", WARN, "no test"),
    ],
)
def test_dcgm(printed: str, severity: Severity, word: str) -> None:
    verdict = judge_dcgm(printed)
    assert verdict.severity is severity and word in verdict.detail


NVML = """
NVML_NVLINK_MAX_LINKS = 4
NVML_TEMPERATURE_GPU = 0
NVML_MEMORY_ERROR_TYPE_UNCORRECTED = 1
NVML_VOLATILE_ECC = 0
class NVMLError(Exception): pass
class Pci: busId = b"00000000:3B:00.0"
def nvmlInit(): pass
def nvmlShutdown(): pass
def nvmlDeviceGetCount(): return 3
def nvmlDeviceGetHandleByIndex(index):
    if index == 2: raise NVMLError("GPU is lost")
    return index
def nvmlDeviceGetName(handle): return b"NVIDIA H100"
def nvmlDeviceGetPciInfo(handle): return Pci
def nvmlDeviceGetTotalEccErrors(handle, kind, counter): return 5 * (handle == 1)
def nvmlDeviceGetRemappedRows(handle):
    raise NVMLError("Not Supported")
def nvmlDeviceGetNvLinkState(handle, link):
    if link == 3: raise NVMLError("Invalid Argument")
    return int(link != 2)
def nvmlDeviceGetTemperature(handle, sensor): return 55
def nvmlDeviceGetCurrentClocksThrottleReasons(handle): return 0
def nvmlDeviceGetCurrPcieLinkWidth(handle): return 16
def nvmlDeviceGetMaxPcieLinkWidth(handle): return 16
"""


def test_what_nvml_says_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in with the names and types of nvidia-ml-py 13: no GPU is near."""
    module = ModuleType("pynvml")
    exec(NVML, module.__dict__)
    monkeypatch.setitem(sys.modules, "pynvml", module)
    found = read_gpus()
    assert found.by == "nvml"
    first = Gpu(
        0, "NVIDIA H100", "00000000:3B:00.0", links_up=2, links_down=1, celsius=55,
        pcie_width=16, pcie_width_max=16,
    )  # fmt: skip
    assert found.gpus[0] == first
    assert found.gpus[1].uncorrected == 5
    assert found.gpus[2] == Gpu(2, error="GPU is lost")

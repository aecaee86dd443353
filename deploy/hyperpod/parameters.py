"""What a HyperPod node is to be: its two JSON files as shell variables.

    python3 parameters.py RESOURCE_CONFIG PROVISIONING_PARAMETERS ADDRESS

In: `resource_config.json`, which HyperPod writes onto each node (groups of instances with their
addresses), and `provisioning_parameters.json`, which lies beside the lifecycle scripts. ADDRESS is
one of this machine's. Out: lines NAME=value, quoted for `eval`. Exit code 1 with the field at
fault. Needs nothing but Python 3.8: it runs before anything is installed.
"""

import json
import shlex
import sys
from pathlib import Path


def read(path):
    """A JSON object from a file."""
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        fail(f"{path} is missing")
    except ValueError as error:
        fail(f"{path} is not JSON: {error}")
    if not isinstance(values, dict):
        fail(f"{path} must hold a JSON object")
    return values


def settings(resources, parameters, address):
    """The variables of the node with `address`."""
    if parameters.get("workload_manager") != "slurm":
        fail(
            f"workload_manager is {parameters.get('workload_manager')!r}: only slurm is known here"
        )
    groups = {
        group.get("Name"): [i.get("CustomerIpAddress") for i in group.get("Instances", [])]
        for group in resources.get("InstanceGroups", [])
    }
    own = next((name for name, members in groups.items() if address in members), None)
    if own is None:
        fail(f"no instance group of the resource config has the address {address}")
    controller = parameters.get("controller_group")
    if not groups.get(controller):
        fail(f"controller_group is {controller!r}, which has no instance")
    workers = [group.get("instance_group_name") for group in parameters.get("worker_groups", [])]
    for name in workers:
        if name not in groups:
            fail(f"worker_groups names {name!r}, which is no instance group")
    roles = {controller: "controller", parameters.get("login_group"): "login"}
    dsm = parameters.get("dsm", {})
    known = {"mount_point", "project", "gpus_per_node", "replace_nodes", "observability"}
    if unknown := set(dsm) - known:
        fail(f"dsm: unknown field(s) {', '.join(sorted(unknown))}")
    mount_point = dsm.get("mount_point", "/fsx")
    return {
        "ROLE": roles.get(own, "compute"),
        "GROUP": own,
        "CONTROLLERS": ",".join(groups[controller]),
        "WORKERS": " ".join(a for name in workers for a in groups[name]),
        "FSX_DNS": parameters.get("fsx_dns_name", ""),
        "FSX_NAME": parameters.get("fsx_mountname", ""),
        "MOUNT_POINT": mount_point,
        "PROJECT": dsm.get("project", f"{mount_point}/dsm-pipeline"),
        "GPUS": str(dsm.get("gpus_per_node", 0)),
        "REPLACE_NODES": str(bool(dsm.get("replace_nodes", True))).lower(),
        "METRICS_TARGETS": f"{mount_point}/metrics-targets",
        "OBSERVABILITY": str(bool(dsm.get("observability", False))).lower(),
    }


def fail(message):
    print(f"parameters: {message}", file=sys.stderr)
    sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        fail("usage: parameters.py RESOURCE_CONFIG PROVISIONING_PARAMETERS ADDRESS")
    found = settings(read(sys.argv[1]), read(sys.argv[2]), sys.argv[3])
    for name, value in found.items():
        print(f"{name}={shlex.quote(value)}")

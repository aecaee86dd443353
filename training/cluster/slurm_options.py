"""What a site wants to know of the jobs that a run submits to its Slurm: `slurm:` of a run."""

from __future__ import annotations

from training.cluster.container import ContainerOptions
from workspace.config import StageConfig, setting


class SlurmOptions(StageConfig):
    """What a site wants to know about a job. None of it changes what the job computes."""

    partition: str = setting(
        "", position=1, description="partition; empty: the default one", affects_output=False
    )
    account: str = setting("", position=2, description="account to charge", affects_output=False)
    qos: str = setting("", position=3, description="quality of service", affects_output=False)
    constraint: str = setting(
        "", position=4, description="node features, e.g. h100&ib", affects_output=False
    )
    reservation: str = setting("", position=5, description="reservation", affects_output=False)
    gres: str = setting(
        "",
        position=6,
        description="generic resources per node; empty: gpu:N when the job wants N GPUs per node",
        affects_output=False,
    )
    mem: str = setting(
        "",
        position=7,
        description="memory per node, e.g. 64G; 0: all of it; empty: the site's default",
        affects_output=False,
    )
    exclusive: bool = setting(
        False, position=8, description="take whole nodes", affects_output=False
    )
    extra: tuple[str, ...] = setting(
        (),
        position=9,
        description="more sbatch options, each as --name or --name=value",
        affects_output=False,
    )
    setup: tuple[str, ...] = setting(
        (),
        position=10,
        description="lines of bash run on the first node before the ranks start (module load ...)",
        affects_output=False,
    )
    python: str = setting(
        "",
        position=11,
        description="interpreter on the nodes; empty: the one that submits (shared file system)",
        affects_output=False,
    )
    requeue: bool = setting(
        False,
        position=12,
        description="let Slurm itself start the job again when its first node fails and nobody"
        " watches the run (the loss of other nodes is the coordinator's)",
        affects_output=False,
    )
    signal_lead_s: int = setting(
        120,
        position=13,
        ge=30,
        le=3600,
        description="seconds before the time limit at which the ranks are told to save and stop",
        affects_output=False,
    )
    cancel_grace_s: float = setting(
        60.0,
        position=14,
        ge=0,
        le=3600,
        description="seconds that a cancelled job has to save before it is killed",
        affects_output=False,
    )
    modules: tuple[str, ...] = setting(
        (),
        position=15,
        description="environment modules to load before the setup lines, e.g. cuda/12.8",
        affects_output=False,
    )
    switches: int = setting(
        0,
        position=16,
        ge=0,
        description="most leaf switches that the nodes may hang on (topology/tree; 0: any)",
        affects_output=False,
    )
    switches_wait_s: int = setting(
        0,
        position=17,
        ge=0,
        description="seconds to wait for so few switches (0: as long as the site allows)",
        affects_output=False,
    )
    segment: int = setting(
        0,
        position=18,
        ge=0,
        description="nodes in a row of one block, such as an NVLink domain (topology/block, Slurm "
        "24.05 and newer; must divide the job's nodes; 0: any)",
        affects_output=False,
    )
    successor: bool = setting(
        False,
        position=21,
        description="let the next attempt wait in the queue while one runs: it takes over when "
        "that ends badly, also when no supervisor lives",
        affects_output=False,
    )
    successor_wait_s: float = setting(
        30.0,
        position=22,
        ge=1,
        le=3600,
        description="seconds that such a successor waits for a supervisor's decision before it "
        "goes on alone",
        affects_output=False,
    )
    metrics: bool = setting(
        True,
        position=23,
        description="serve what the ranks do to Prometheus, over HTTP on each node",
        affects_output=False,
    )
    metrics_port: int = setting(
        0,
        position=24,
        ge=0,
        le=65_535,
        description="port of that, or the next free one (0: derived from the job, 19000 to 19999)",
        affects_output=False,
    )
    metrics_targets: str = setting(
        "",
        position=25,
        description="folder on the shared file system where Prometheus looks for the nodes that "
        "serve (file_sd_configs); empty: metrics-targets in the workspace",
        affects_output=False,
    )
    container: ContainerOptions = setting(
        ContainerOptions(),
        position=19,
        description="what the ranks run in",
        affects_output=False,
    )

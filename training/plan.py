"""What will a training run need: layouts that fit, memory, speed, time and cost.

    python -m training.plan --model Llama-2-13B --gpu H100 --nodes 4 --global-batch 256
    python -m training.plan --model models/mine --tokens 2e9 --chart plan.png
    python -m training.plan --model models/mine --cluster cluster.yaml --measured links.json
    python -m training.plan --backtest runs.csv --json

In: a model (a folder with a Hugging Face config.json, or a name of training/planner/shapes.yaml;
`--model` may be left out before it) and a cluster (flags, or a YAML file of groups of nodes). Out,
on standard output: the layouts that fit, the fastest first, why others lost, and a table from 1 to
N nodes; `--json`: the same as JSON.
Nodes of different GPUs are planned apart, since a synchronous step waits for the slowest.
`--backtest` compares the planner with a table of published runs instead.

Exit code 0: done; 1: nothing fits, or a file is wrong; 2: bad usage. Nothing is started and nothing
is written but the chart. Not covered: failures and restarts, checkpoints' time, loading of data.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from training.planner.hardware import Cluster, GpuGroup, Machine, machine_of
from training.planner.layout import (
    Arithmetic,
    AttentionKernel,
    Job,
    Loss,
    Method,
    Optimizer,
)
from training.planner.links import read_links, with_links_of_one
from training.planner.search import TENSOR_LINK_GBYTES
from workspace.config import setting
from workspace.errors import DsmError, UserError
from workspace.flags import FlagParser, UsageError

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2


class PlanConfig(GpuGroup):
    """A job and the GPUs for it; the cluster's flags describe one group of equal nodes."""

    model: str = setting(
        "",
        position=10,
        positional=True,
        description="folder with a Hugging Face config.json, or a known model's name",
    )
    cluster: Path | None = setting(
        None, position=11, description="YAML file with `groups` of nodes; replaces the GPU's flags"
    )
    measured: Path | None = setting(
        None,
        position=11,
        description="links between the nodes as training.cluster.health.bandwidth --save measured "
        "them; replaces fabric_gbytes of these nodes",
    )
    seq_len: int = setting(4096, position=12, ge=16, le=1 << 24, description="tokens in a sequence")
    global_batch: int = setting(
        256, position=13, ge=1, le=1 << 24, description="sequences in an optimizer step"
    )
    tokens: float = setting(1e9, position=14, gt=0, le=1e18, description="tokens to train")
    arithmetic: Arithmetic = setting("bf16", position=15, description="of the layers' products")
    method: Method = setting("full", position=16, description="which weights are trained")
    lora_rank: int = setting(16, position=17, ge=1, le=4096, description="rank of adapters")
    optimizer: Optimizer = setting("adamw", position=18, description="and the form of its states")
    loss: Loss = setting(
        "whole", position=19, description="logits at the loss: fp32, in place, never all at once"
    )
    attention: AttentionKernel | None = setting(
        None, position=20, description="attention kernel (none: the GPU's usual one)"
    )
    fused: bool = setting(True, position=20, description="kernels are compiled or fused by hand")
    async_tensor: bool = setting(
        False, position=20, description="products pipelined with tensor-parallel transfers"
    )
    fused_experts: bool = setting(
        False, position=20, description="one kernel for all experts' products (Blackwell)"
    )
    software: str = setting(
        "", position=21, description="trainer whose measured speed applies (empty: an average one)"
    )
    tensor_link_gbytes: float = setting(
        TENSOR_LINK_GBYTES,
        position=22,
        ge=0,
        le=1e5,
        description="slowest link, GB/s in one direction, that tensor parallelism may cross",
    )
    shown: int = setting(8, position=23, ge=1, le=1000, description="rows of each table")
    chart: Path | None = setting(
        None, position=24, description="file for memory and scaling, .png or .svg"
    )
    backtest: Path | None = setting(
        None, position=25, description="CSV of published runs to compare the planner with"
    )
    json_output: bool = setting(False, position=26, description="print JSON")


def job_of(config: PlanConfig) -> Job:
    """The job that a configuration describes. Raises `UserError` for unknown software."""
    from training.planner.calibration import load

    known = load().stack_speed
    if config.software and config.software not in known:
        raise UserError(f"software {config.software!r} was not measured: {', '.join(known)}")
    return Job(
        seq_len=config.seq_len,
        global_batch=config.global_batch,
        arithmetic=config.arithmetic,
        method=config.method,
        optimizer=config.optimizer,
        lora_rank=config.lora_rank,
        attention=config.attention,
        loss=config.loss,
        fused=config.fused,
        async_tensor=config.async_tensor,
        fused_experts=config.fused_experts,
        stack=config.software,
    )


def machines_of(config: PlanConfig) -> list[Machine]:
    """Equal nodes that a job may span; groups of the same nodes are one.

    Raises `UserError` for a wrong cluster, or links that were not measured on it lately.
    """
    if config.cluster is None:
        fields = GpuGroup.model_fields
        groups: tuple[GpuGroup, ...] = (
            GpuGroup(**{name: getattr(config, name) for name in fields}),
        )
    else:
        groups = Cluster.from_yaml(config.cluster).groups
    merged: dict[str, Machine] = {}
    for machine in map(machine_of, groups):
        key = machine.with_nodes(1).fingerprint()
        before = merged[key].nodes if key in merged else 0
        merged[key] = machine.with_nodes(machine.nodes + before)
    machines = list(merged.values())
    if config.measured is None:
        return machines
    links = read_links(config.measured)
    links.require_recent(datetime.now(UTC))
    return with_links_of_one(machines, links)


def main(arguments: Sequence[str] | None = None) -> int:
    """Plan or back-test; returns the exit code."""
    about, _, rest = (__doc__ or "").partition("\n\n")
    parser = FlagParser("python -m training.plan", PlanConfig, about, rest, can_preview=False)
    given = list(sys.argv[1:] if arguments is None else arguments)
    # The short form that every tool has.
    given = ["--json-output" if argument == "--json" else argument for argument in given]
    try:
        config = parser.parse(given).config
        if not config.model and config.backtest is None:
            raise UsageError("--model is required: a folder with a config.json or a known name")
    except UsageError as error:
        print(error, file=sys.stderr)
        return EXIT_USAGE
    try:
        return _backtest(config) if config.backtest else _plan(config)
    except DsmError as error:
        print(f"plan: {error}", file=sys.stderr)
        return EXIT_FAILED


def _backtest(config: PlanConfig) -> int:
    from training.planner import report
    from training.planner.backtest import judge
    from training.planner.calibration import load
    from training.planner.published import read_runs

    assert config.backtest is not None
    result = judge(read_runs(config.backtest), load())
    if config.json_output:
        print(json.dumps(result.as_json(), indent=1))
    else:
        report.print_backtest(result, config.shown)
    return EXIT_DONE


def _plan(config: PlanConfig) -> int:
    from training.planner import report
    from training.planner.forecast import forecast
    from training.planner.shape import read_shape

    found = forecast(
        read_shape(config.model),
        job_of(config),
        machines_of(config),
        config.tokens,
        tensor_link_gbytes=config.tensor_link_gbytes,
    )
    if config.json_output:
        print(json.dumps(found.as_json(config.shown), indent=1))
    else:
        report.print_forecast(found, config.shown)
    if config.chart is not None:
        from training.planner.chart import draw

        draw(found, config.chart)
    return EXIT_DONE if found.best is not None else EXIT_FAILED


if __name__ == "__main__":
    sys.exit(main())

"""The training planner against published runs that its constants were not fitted on.

    python -m benchmarks.training.planner [--short]

Every source's runs are predicted with constants fitted on the other sources and with the speed of
an average software stack; the long form adds a fifth of the models of each source left out at a
time. Peers, on the same rows: throughput as a constant share of the GPU's peak, the median of the
other sources' runs on that family of GPU; memory as the textbooks have it, 16 bytes a parameter,
activations of Korthikanti et al., logits. The table stays outside of the project
(`../shared/data`).
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations

from benchmarks.measure import Report, parser, shared_data
from training.planner.backtest import (
    Prediction,
    Score,
    groups,
    predict,
    score_memory,
    score_throughput,
)
from training.planner.calibration import load
from training.planner.fit import fit, fitted
from training.planner.hardware import GpuGroup, machine_of
from training.planner.layout import Job
from training.planner.memory import GIB, state_bytes
from training.planner.published import Run, read_runs
from training.planner.scaling import scaling_table
from training.planner.shape import read_shape

CONSTANT_MFU = "constant MFU of the GPU"
FOLDS = 5
TEXTBOOK = "textbook formula"


def main() -> int:
    return measure(parser(__doc__ or "").parse_args().short).finish()


def measure(short: bool) -> Report:
    """The figures, not yet written."""
    report = Report("training", "planner", short=short)
    table = read_runs(shared_data() / "published_runs" / "published_runs.csv")
    reasons: dict[str, int] = {}
    for row in table.unjudged:
        reasons[row.reason] = reasons.get(row.reason, 0) + 1
    report.add("rows judged", len(table.runs), f"of {len(table.runs) + len(table.unjudged)}")
    report.notes += [f"not judged, {count}: {reason}" for reason, count in reasons.items()]
    by_source = leave_out(table.runs, lambda run: run.source, average_stack=True)
    throughput(report, by_source)
    memory(report, by_source)
    ranking(report, by_source)
    if not short:
        models = list(dict.fromkeys((run.source, run.shape.name) for run in table.runs))
        fold = {model: number % FOLDS for number, model in enumerate(models)}
        by_model = leave_out(
            table.runs, lambda run: fold[run.source, run.shape.name], average_stack=False
        )
        mine = score_throughput(common(by_model))
        add_score(report, "models left out, 16-bit dense A100 and H100", mine)
        for name, members in groups(by_model).items():
            add_score(report, f"models left out, {name}", score_throughput(members))
        held = score_memory(item for item in by_model if item.run.peak_gib)
        report.add("memory, models left out: median", 100 * held.median, "%")
        report.add("memory, models left out: most under", 100 * held.worst_under, "%")
    shipped = [predict(run, load()) for run in table.runs]
    add_score(report, "shipped constants, in sample, all", score_throughput(shipped))
    scaling(report)
    report.notes.append(
        "priors and the model's form were chosen with the table in view; only the constants are "
        "fitted without the runs left out"
    )
    return report


def leave_out(
    runs: Sequence[Run], key: Callable[[Run], Hashable], *, average_stack: bool
) -> list[Prediction]:
    """Each group's runs, predicted with constants fitted on all others."""
    found = []
    for left in dict.fromkeys(map(key, runs)):
        constants = fit([run for run in runs if key(run) != left])
        if average_stack:
            constants = constants.model_copy(update={"stack_speed": {}})
        found += [predict(run, constants) for run in runs if key(run) == left]
    return found


def common(predictions: Iterable[Prediction]) -> list[Prediction]:
    """Dense models in 16 bits on A100 and H100, which most of the world's runs are."""
    return [
        item
        for item in predictions
        if item.run.is_sixteen_bit
        and not item.run.shape.is_moe
        and item.run.machine.gpu.name.startswith(("A100", "H100"))
        and item.run.tokens_per_second_per_gpu
    ]


def throughput(report: Report, predictions: list[Prediction]) -> None:
    """Errors with a source left out, beside a constant MFU."""
    rows = common(predictions)
    constant = score_throughput(map(constant_mfu(predictions), rows))
    mine = score_throughput(rows)
    name = "source left out, 16-bit dense A100 and H100"
    report.add(f"{name}: median", 100 * mine.median, "%", target="<= 7",
               peer=CONSTANT_MFU, peer_value=100 * constant.median)  # fmt: skip
    report.add(f"{name}: p90", 100 * mine.p90, "%", target="<= 20",
               peer=CONSTANT_MFU, peer_value=100 * constant.p90)  # fmt: skip
    report.add(f"{name}: runs", mine.n)
    for group, members in groups(predictions).items():
        judged = [item for item in members if item.run.tokens_per_second_per_gpu]
        peer = score_throughput(map(constant_mfu(predictions), judged))
        mine = score_throughput(judged)
        report.add(f"source left out, {group}: median", 100 * mine.median, "%",
                   peer=CONSTANT_MFU, peer_value=100 * peer.median)  # fmt: skip
        report.add(f"source left out, {group}: p90", 100 * mine.p90, "%",
                   peer=CONSTANT_MFU, peer_value=100 * peer.p90)  # fmt: skip


def constant_mfu(predictions: Sequence[Prediction]) -> Callable[[Prediction], Prediction]:
    """The peer: the other sources' median MFU on that family of GPU, or on any where none is."""
    runs = fitted(item.run for item in predictions)

    def told(item: Prediction) -> Prediction:
        run = item.run
        others = [other for other in runs if other.source != run.source]
        alike = [
            other
            for other in others
            if other.machine.gpu.family == run.machine.gpu.family
            and other.is_sixteen_bit == run.is_sixteen_bit
        ]
        share = statistics.median(_mfu(other) for other in alike or others)
        return item._replace(tokens_per_second_per_gpu=share * _ceiling(run))

    return told


def _ceiling(run: Run) -> float:
    """Tokens/s of a GPU at its full 16-bit rate."""
    flops = run.shape.model_flops_per_token(run.job.seq_len, frozen=run.job.method != "full")
    return run.machine.gpu.tflops["bf16"] * 1e12 / flops


def _mfu(run: Run) -> float:
    return (run.tokens_per_second_per_gpu or 0.0) / _ceiling(run)


def memory(report: Report, predictions: list[Prediction]) -> None:
    """Errors of peak memory with a source left out, beside the textbook."""
    rows = [item for item in predictions if item.run.peak_gib]
    book = score_memory(item._replace(peak_gib=textbook(item.run)) for item in rows)
    mine = score_memory(rows)
    report.add("memory, source left out: median", 100 * mine.median, "%", target="<= 15",
               peer=TEXTBOOK, peer_value=100 * book.median)  # fmt: skip
    report.add("memory, source left out: most under", 100 * mine.worst_under, "%", target="<= 5",
               peer=TEXTBOOK, peer_value=100 * book.worst_under)  # fmt: skip
    report.add("memory, source left out: p90", 100 * mine.p90, "%",
               peer=TEXTBOOK, peer_value=100 * book.p90)  # fmt: skip
    shipped = score_memory(predict(item.run, load()) for item in rows)
    report.add("memory, shipped constants: median", 100 * shipped.median, "%")
    report.add("memory, shipped constants: most under", 100 * shipped.worst_under, "%")
    report.add("memory: runs", mine.n)


def textbook(run: Run) -> float:
    """GiB: ZeRO's 16 bytes a parameter, 34 bytes of activations a hidden number, fp32 logits."""
    shape, job, layout = run.shape, run.job, run.layout
    local = shape.parameters / (layout.tp * layout.pp)
    states = sum(state_bytes(layout.sharding, layout.replicas_per_shard, "adamw", 2.0))
    if job.method != "full":
        kept = 0.5 if job.method == "qlora" else 2.0
        states = kept / (layout.replicas_per_shard if layout.sharding == "zero3" else 1)
    tokens = layout.micro_batch * job.seq_len / layout.cp
    width = 34.0 if layout.checkpointing in ("none", "selective") else 2.0
    activations = width * shape.hidden * tokens * shape.layers / (layout.tp * layout.pp)
    logits = 4.0 * tokens * shape.vocab / layout.tp
    return (local * states + activations + logits) / GIB


def ranking(report: Report, predictions: Sequence[Prediction]) -> None:
    """Are layouts of one model on as many equal GPUs put in their measured order?

    Pairs have the same software; releases apart are medians of one setting.
    """
    settings: dict[Hashable, dict[str, list[Prediction]]] = {}
    for item in predictions:
        run = item.run
        if run.tokens_per_second_per_gpu is None:
            continue
        group = (run.source, run.shape.name, run.machine.gpu.name, run.layout.gpus,
                 run.job.seq_len, run.job.method, run.job.fused_experts)  # fmt: skip
        setting = repr((run.layout, run.job))
        settings.setdefault(group, {}).setdefault(setting, []).append(item)
    agreeing = pairs = 0
    for members in settings.values():
        points = [
            (
                statistics.median(item.run.tokens_per_second_per_gpu or 0.0 for item in same),
                same[0].tokens_per_second_per_gpu,
            )
            for same in members.values()
        ]
        for (measured, told), (other, other_told) in combinations(points, 2):
            pairs += 1
            agreeing += (measured > other) == (told > other_told)
    tau = 2 * agreeing / pairs - 1
    report.add("ranking of settings, source left out: Kendall tau", tau, target=">= 0.6")
    report.add("ranking of settings: pairs", pairs)


def scaling(report: Report) -> None:
    """Llama-2-13B at a fixed batch of a million tokens on four nodes over one."""
    shape = read_shape("Llama-2-13B")
    for gpu in ("A100-80GB", "H100"):
        machine = machine_of(GpuGroup(gpu=gpu, nodes=4))
        rows = scaling_table(shape, Job(4096, 256), machine, 1e9, load())
        speedup = rows[-1].speedup
        report.add(f"Llama-2-13B, 4 nodes of {gpu} over one", speedup, "x", target=">= 3.7")
        report.add(f"Llama-2-13B, 4 nodes of {gpu}: not more than", speedup, "x", target="<= 4.05")


def add_score(report: Report, name: str, score: Score) -> None:
    report.add(f"{name}: median", 100 * score.median, "%")
    report.add(f"{name}: p90", 100 * score.p90, "%")
    report.add(f"{name}: runs", score.n)


if __name__ == "__main__":
    sys.exit(main())

"""Back-testing on tables of published runs: what is read, what is left out, hostile tables."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.plan import main
from training.planner.backtest import judge, quantile, score_memory, score_throughput
from training.planner.calibration import load
from training.planner.published import COLUMNS, Run, Unjudged, read_runs
from workspace.errors import UserError

HEADER = (*COLUMNS, "nodes", "interconnect", "ep", "vp", "stage", "notes")
ROW = {
    "source": "someone", "model": "Llama-3.1-8B", "params": "8030261248", "gpus": "32",
    "gpu_type": "H100_80GB", "nodes": "4", "seq_len": "8192", "global_batch": "64",
    "micro_batch": "1", "tp": "1", "pp": "1", "dp": "32", "cp": "1",
    "zero_stage_or_fsdp": "FSDP2", "precision": "bf16", "activation_ckpt": "full",
    "tokens_per_s_per_gpu": "6000", "peak_mem_gib": "40", "stage": "pretrain",
}  # fmt: skip


def table(path: Path, *changes: dict[str, str]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, HEADER)
        writer.writeheader()
        for change in changes:
            writer.writerow({**ROW, **change})
    return path


def read_one(tmp_path: Path, **change: str) -> Run | Unjudged:
    found = read_runs(table(tmp_path / "runs.csv", change))
    assert len(found.runs) + len(found.unjudged) == 1
    return found.runs[0] if found.runs else found.unjudged[0]


def run(tmp_path: Path, **change: str) -> Run:
    found = read_one(tmp_path, **change)
    assert isinstance(found, Run), found
    return found


def test_a_row_becomes_the_run_that_it_describes(tmp_path: Path) -> None:
    found = run(tmp_path, interconnect="NVLink + 1600 Gb/s RoCE per node")
    assert (found.layout.dp, found.layout.sharding, found.layout.checkpointing) == (
        32, "zero3", "full",
    )  # fmt: skip
    assert (found.job.seq_len, found.job.global_batch, found.job.arithmetic) == (8192, 64, "bf16")
    assert found.machine.nodes == 4
    # 1600 Gb/s are 200 GB/s for eight GPUs.
    assert found.machine.fabric_gbytes == 25


@pytest.mark.parametrize(
    ("text", "sharding"),
    [("none", "none"), ("ZeRO-0", "none"), ("ZeRO-1", "zero1"), ("distributed optimizer", "zero1"),
     ("FSDP SHARD_GRAD_OP", "zero2"), ("FSDP FULL_SHARD", "zero3"), ("ZeRO-3", "zero3")],
)  # fmt: skip
def test_names_of_sharding(tmp_path: Path, text: str, sharding: str) -> None:
    assert run(tmp_path, zero_stage_or_fsdp=text).layout.sharding == sharding


@pytest.mark.parametrize(
    ("source", "text", "checkpointing"),
    [("someone", "", "none"), ("someone", "selective", "selective"), ("someone", "full", "full"),
     ("someone", "offload", "offload"), ("someone", "none", "none"),
     ("torchtitan", "selective op", "alternate"), ("torchtitan", "", "alternate")],
)  # fmt: skip
def test_names_of_checkpointing(tmp_path: Path, source: str, text: str, checkpointing: str) -> None:
    """Torchtitan's selective kind computes every other product again."""
    assert run(tmp_path, source=source, activation_ckpt=text).layout.checkpointing == checkpointing


@pytest.mark.parametrize(
    ("text", "arithmetic"),
    [("amp_bf16", "bf16"), ("bf16 (fp32 grad accum)", "bf16"), ("bf16+float8", "fp8"),
     ("MXFP8", "mxfp8"), ("NVFP4", "nvfp4"), ("", "bf16")],
)  # fmt: skip
def test_names_of_arithmetic(tmp_path: Path, text: str, arithmetic: str) -> None:
    assert run(tmp_path, precision=text).job.arithmetic == arithmetic


def test_a_share_of_the_peak_is_turned_into_tokens(tmp_path: Path) -> None:
    """40 % of 989.4 TFLOPS over 6N + 12LHQT of Llama-3.1-8B at 8192 tokens."""
    found = run(tmp_path, tokens_per_s_per_gpu="", mfu="40")
    expected = 0.4 * 989.4e12 / (6 * 8_030_261_248 + 12 * 32 * 4096 * 8192)
    assert found.tokens_per_second_per_gpu == pytest.approx(expected)


def test_a_batch_in_tokens_is_turned_into_sequences(tmp_path: Path) -> None:
    assert run(tmp_path, global_batch="16M tokens").job.global_batch == 1953


def test_what_a_row_leaves_to_its_software_is_filled_and_named(tmp_path: Path) -> None:
    found = run(tmp_path, source="torchtitan", seq_len="", notes="Interleaved 1F1B AsyncTP")
    assert found.job.seq_len == 8192
    assert found.job.async_tensor
    assert any("8192" in text for text in found.assumed)


@pytest.mark.parametrize(
    ("model", "gpus", "pp", "pieces"),
    [("Llama-3.1-405B", "128", "16", 4), ("Llama-3.1-70B", "64", "8", 2),
     ("Llama-3.1-70B", "8", "1", 1)],
)  # fmt: skip
def test_interleaved_stages_are_cut_into_equal_pieces(
    tmp_path: Path, model: str, gpus: str, pp: str, pieces: int
) -> None:
    """Megatron refuses others. Of 126 layers (Llama 3, section 3.3.2) 16 stages hold 8, the first
    and the last 7; of 80, eight stages hold 10; without a pipeline there is nothing to cut."""
    found = run(
        tmp_path, source="llama3", model=model, gpus=gpus, nodes="", tp="8", pp=pp, dp="1",
        activation_ckpt="full", tokens_per_s_per_gpu="50", peak_mem_gib="",
    )  # fmt: skip
    assert found.layout.virtual_stages == pieces
    assert found.assumed == ((f"interleaved in {pieces} pieces a stage",) if pieces > 1 else ())


def test_a_vocabulary_in_the_notes_is_that_of_the_usual_shape(tmp_path: Path) -> None:
    found = run(tmp_path, model="GPT 7.1B", params="7.1e9", notes="weak scaling; vocab 131072")
    assert found.shape.vocab == 131_072


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"gpu_type": "TPU v5p"}, "not in gpus.yaml"),
        ({"model": "secret", "params": ""}, "shape is not known"),
        ({"model": "secret-8x7b"}, "mixture of experts"),
        ({"seq_len": ""}, "seq_len is not stated"),
        ({"gpus": "-8"}, "gpus is out of range"),
        ({"gpus": "1e400"}, "gpus is out of range"),
        ({"micro_batch": "1.5"}, "micro_batch is no whole number"),
        ({"dp": "31"}, "is not its 32 GPUs"),
        ({"tp": "", "dp": ""}, "layout"),
        ({"precision": "posit"}, "precision 'posit'"),
        ({"zero_stage_or_fsdp": "magic"}, "sharding 'magic'"),
        ({"tokens_per_s_per_gpu": "", "peak_mem_gib": ""}, "neither a throughput"),
        ({"tokens_per_s_per_gpu": "fast"}, "tokens_per_s_per_gpu is no number"),
        ({"tokens_per_s_per_gpu": "192000"}, "more than the GPU can compute"),
        ({"peak_mem_gib": "40000"}, "more than the GPU has"),
        ({"stage": "rl GRPO"}, "reinforcement-learning loop"),
        ({"notes": "+compile (cumulative steps)"}, "depend on the rows before it"),
    ],
)
def test_a_row_that_cannot_be_judged_says_why(
    tmp_path: Path, change: dict[str, str], reason: str
) -> None:
    found = read_one(tmp_path, **change)
    assert isinstance(found, Unjudged)
    assert reason in found.reason
    assert found.line == 2


def test_every_row_is_judged_or_listed(tmp_path: Path) -> None:
    path = table(tmp_path / "runs.csv", {}, {"seq_len": ""}, {"gpus": "x"}, {})
    result = judge(read_runs(path), load()).as_json()
    assert len(result["rows"]) == 2  # type: ignore[arg-type]
    assert [row["line"] for row in result["unjudged"]] == [3, 4]  # type: ignore[attr-defined]
    assert result["throughput"]["n"] == 2  # type: ignore[index]


def test_scores_are_fractions_of_what_was_measured(tmp_path: Path) -> None:
    path = table(tmp_path / "runs.csv", {}, {})
    first, second = judge(read_runs(path), load()).predictions
    measured = first.run.peak_gib or 0.0
    pair = [
        first._replace(peak_gib=0.9 * measured, tokens_per_second_per_gpu=6600.0),
        second._replace(peak_gib=1.3 * measured, tokens_per_second_per_gpu=4200.0),
    ]
    memory = score_memory(pair)
    assert memory == pytest.approx((0.2, 0.28, 2, 0.1))
    speed = score_throughput(pair)
    assert speed[:3] == pytest.approx((0.2, 0.28, 2))
    assert math.isnan(quantile([], 0.5))


def test_open_settings_are_filled_so_that_the_run_fits(tmp_path: Path) -> None:
    """An 8 B model was trained whole on one card of 24 GB: only a paged optimizer allows that."""
    found = run(
        tmp_path, gpus="1", nodes="1", dp="1", gpu_type="RTX4090", zero_stage_or_fsdp="none",
        seq_len="2048", global_batch="", micro_batch="2", activation_ckpt="", source="torchtune",
        peak_mem_gib="",
    )  # fmt: skip
    assert found.job.optimizer == "paged_8bit"
    assert "optimizer paged_8bit" in found.assumed
    assert "one micro-batch a step" in found.assumed


@pytest.mark.parametrize(
    ("source", "checkpointing"), [("someone", "selective"), ("torchtune", "full")]
)
def test_what_a_software_cannot_do_is_not_assumed(
    tmp_path: Path, source: str, checkpointing: str
) -> None:
    """Adapters over four bits on a card of 24 GB: torchtune computes all again, or nothing."""
    found = run(
        tmp_path, gpus="1", nodes="1", dp="1", gpu_type="RTX4090", zero_stage_or_fsdp="none",
        seq_len="2048", global_batch="", micro_batch="2", activation_ckpt="", source=source,
        stage="sft-qlora", notes="chunked loss", peak_mem_gib="",
    )  # fmt: skip
    assert found.layout.checkpointing == checkpointing


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe\x00", b'source,"model\n'])
def test_a_file_that_is_no_such_table_is_an_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"bad\.csv"):
        read_runs(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        read_runs(tmp_path / "none.csv")


def test_spelling_of_the_table_makes_no_difference(tmp_path: Path) -> None:
    """Order of the columns, blanks in the header, a byte order mark, line ends, quotes."""
    plain = run(tmp_path)
    shuffled = tmp_path / "spelled.csv"
    with shuffled.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerow([f" {name} " for name in reversed(HEADER)])
        writer.writerow([f" {ROW.get(name, '')} " for name in reversed(HEADER)])
    assert read_runs(shuffled).runs == [plain]


def test_an_empty_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "nothing.csv").touch()
    with pytest.raises(UserError, match=r"nothing\.csv is empty"):
        read_runs(tmp_path / "nothing.csv")


def test_a_table_without_a_run_that_can_be_judged_is_a_listing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = table(tmp_path / "runs.csv", dict.fromkeys(HEADER, "0"), dict.fromkeys(HEADER, ""))
    assert main(["--backtest", str(path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (told["rows"], told["throughput"]["n"]) == ([], 0)
    assert [row["line"] for row in told["unjudged"]] == [2, 3]
    assert main(["--backtest", str(path)]) == 0
    assert "GPU '' is not in gpus.yaml (lines 3)" in capsys.readouterr().out


@given(st.lists(st.text(max_size=8), min_size=len(HEADER), max_size=len(HEADER)))
def test_any_texts_in_the_cells_are_judged_or_listed(
    tmp_path_factory: pytest.TempPathFactory, cells: list[str]
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "runs.csv"
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(HEADER)
    writer.writerow(cells)
    path.write_text(text.getvalue(), encoding="utf-8", errors="ignore", newline="")
    try:
        found = read_runs(path)
    except UserError as error:
        assert "runs.csv" in str(error)  # a lone carriage return or quote breaks CSV itself
    else:
        assert len(found.runs) + len(found.unjudged) <= 1


@given(
    st.sampled_from(HEADER),
    st.one_of(st.floats().map(str), st.integers().map(str), st.text(max_size=12)),
)
def test_any_value_in_one_column_is_judged_or_listed(
    tmp_path_factory: pytest.TempPathFactory, column: str, value: str
) -> None:
    value = value.encode("utf-8", "ignore").decode().replace("\r", " ").replace("\x00", " ")
    path = table(tmp_path_factory.mktemp("fuzz") / "runs.csv", {column: value})
    found = read_runs(path)
    assert len(found.runs) + len(found.unjudged) == 1
    judge(found, load())


def test_the_shared_table_is_predicted_as_well_as_the_documents_say(shared_data: Path) -> None:
    path = shared_data / "published_runs" / "published_runs.csv"
    if not path.is_file():
        pytest.skip("no table of published runs")
    result = judge(read_runs(path), load())
    assert result.throughput.n > 350
    assert result.throughput.median < 0.08
    assert result.memory.median < 0.15
    assert result.memory.worst_under < 0.05

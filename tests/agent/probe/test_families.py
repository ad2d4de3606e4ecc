"""What the modules of the usual families are, by the names that these really use; and what no family knows."""

from collections.abc import Callable

import pytest
from torch import nn

from rankscope.probe.adapters import Adapter
from rankscope.probe.graph import nodes_of
from tests.agent.probe import families

TYPES = {
    families.gpt: {
        "transformer.wte": "embedding",
        "transformer.wpe": "embedding",
        "transformer.h.0": "other",
        "transformer.h.0.ln_1": "norm",
        "transformer.h.0.attn.c_attn": "attention",
        "transformer.h.0.attn.c_proj": "attention",
        "transformer.h.0.mlp.c_fc": "mlp",
        "transformer.h.0.mlp.c_proj": "mlp",
        "transformer.ln_f": "norm",
        "lm_head": "head",
    },
    families.llama: {
        "model": "other",
        "model.embed_tokens": "embedding",
        "model.layers.0": "other",
        "model.layers.0.self_attn.q_proj": "attention",
        "model.layers.0.self_attn.o_proj": "attention",
        "model.layers.0.self_attn.q_norm": "norm",
        "model.layers.0.mlp.gate_proj": "mlp",
        "model.layers.0.mlp.act_fn": "mlp",
        "model.layers.0.input_layernorm": "norm",
        "model.norm": "norm",
        "lm_head": "head",
    },
    families.llama_reference: {
        "tok_embeddings": "embedding",
        "layers.0": "other",
        "layers.0.attention.wq": "attention",
        "layers.0.feed_forward.w1": "mlp",
        "layers.0.attention_norm": "norm",
        "layers.0.ffn_norm": "norm",
        "output": "head",
    },
    families.bert: {
        "bert.embeddings.word_embeddings": "embedding",
        "bert.embeddings.LayerNorm": "norm",
        "bert.encoder.layer.0": "other",
        "bert.encoder.layer.0.attention.self.query": "attention",
        "bert.encoder.layer.0.attention.output.dense": "attention",
        "bert.encoder.layer.0.attention.output.LayerNorm": "norm",
        "bert.encoder.layer.0.intermediate.dense": "mlp",
        "bert.encoder.layer.0.output.dense": "mlp",
        "bert.encoder.layer.0.output.LayerNorm": "norm",
        "bert.pooler.dense": "head",
        "cls.predictions.decoder": "head",
    },
    families.vit: {
        "patch_embed.proj": "embedding",
        "patch_embed.norm": "norm",
        "blocks.0": "other",
        "blocks.0.norm1": "norm",
        "blocks.0.attn.qkv": "attention",
        "blocks.0.attn.proj": "attention",
        "blocks.0.mlp.fc1": "mlp",
        "norm": "norm",
        "head": "head",
    },
    families.resnet: {
        "conv1": "conv",
        "bn1": "norm",
        "layer1": "conv",
        "layer1.0": "conv",
        "layer1.0.conv1": "conv",
        "layer1.0.bn1": "norm",
        "layer1.0.downsample.0": "conv",
        "layer1.0.downsample.1": "norm",
        "fc": "head",
    },
    families.moe: {
        "model.layers.0": "other",
        "model.layers.0.self_attn.q_proj": "attention",
        "model.layers.0.input_layernorm": "norm",
        "model.layers.0.mlp": "moe",
        "model.layers.0.mlp.gate": "router",
        "model.layers.0.mlp.experts.0": "expert",
        "model.layers.0.mlp.experts.0.gate_proj": "expert",
        "model.layers.0.mlp.experts.0.w1": "expert",
        "model.layers.0.mlp.shared_expert.down_proj": "expert",
        "model.layers.0.mlp.shared_expert_gate": "router",
    },
    families.t5: {
        "shared": "embedding",
        "encoder.block.0.layer.0.SelfAttention.q": "attention",
        "encoder.block.0.layer.0.layer_norm": "norm",
        "encoder.block.0.layer.1.DenseReluDense.wi": "mlp",
    },
    families.transformer: {
        "encoder.layers.0": "other",
        "encoder.layers.0.self_attn": "attention",
        "encoder.layers.0.self_attn.out_proj": "attention",
        "encoder.layers.0.linear1": "mlp",
        "encoder.layers.0.norm1": "norm",
    },
    families.torchvision_vit: {
        "conv_proj": "embedding",
        "encoder.layers.encoder_layer_1.self_attention": "attention",
        "encoder.layers.encoder_layer_1.ln_1": "norm",
        "heads.head": "head",
    },
}


@pytest.mark.parametrize("make", TYPES, ids=lambda make: make.__name__)
def test_the_modules_of_a_family_are_what_its_authors_call_them(make: Callable[[], nn.Module]) -> None:
    found = {node.path: str(node.layer_type) for node in nodes_of(make())}

    assert {path: found[path] for path in TYPES[make]} == TYPES[make]


@pytest.mark.parametrize(
    ("make", "blocks"),
    [
        (families.gpt, ["transformer.h.0"]),
        (families.bert, ["bert.encoder.layer.0"]),
        (families.vit, ["blocks.0", "blocks.1"]),
        (families.resnet, ["layer1.0", "layer1.1", "layer2.0", "layer2.1"]),
        (families.moe, ["model.layers.0"]),
        (families.t5, ["encoder.block.0", "encoder.block.1"]),
        (families.torchvision_vit, ["encoder.layers.encoder_layer_0", "encoder.layers.encoder_layer_1"]),
    ],
    ids=lambda made: getattr(made, "__name__", ""),
)
def test_the_repeated_blocks_of_a_family_are_its_layers(make: Callable[[], nn.Module], blocks: list[str]) -> None:
    assert [node.path for node in nodes_of(make()) if node.is_block] == blocks


def test_the_names_of_a_family_mean_nothing_where_it_is_not() -> None:
    plain = families.named(gate=families.linear(), output=families.linear(), fc=families.linear())

    assert Adapter.of(["gate", "output", "fc"]).families == ()
    assert {str(node.layer_type) for node in nodes_of(plain)} == {"other"}


def test_a_model_may_be_of_several_families() -> None:
    assert Adapter.of(["patch_embed", "experts", "q_proj", "k_proj"]).families == ("llama", "vit", "moe")


def test_what_a_head_of_an_attention_is_called_makes_it_no_head_of_the_model() -> None:
    model = families.named(sa=families.of_class("MultiHeadAttention", heads=nn.ModuleList([families.of_class("Head")])))

    assert [str(node.layer_type) for node in nodes_of(model)] == ["other", "attention", "attention", "attention"]

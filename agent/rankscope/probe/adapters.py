"""What modules are called in the families of models people train, and so what each of them is.

A name such as `output` or `gate` means one thing in one family and nothing in another, so a family's names
count only in a model in which names are found that tell the family. Several may be found in one model: an
image encoder beside a decoder, experts in a decoder. Where no family says anything, the words of the class
and of the name do: that is the fallback, and all that an unknown model gets.

What lies inside something mostly is what that is: a projection in an attention is attention, whatever it is
called; only what `_WITHIN` names stands out from what it lies in.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rankscope_proto.names import LayerType

_ATTENTION, _MLP, _NORM = LayerType.ATTENTION, LayerType.MLP, LayerType.NORM
_EMBEDDING, _HEAD, _CONV = LayerType.EMBEDDING, LayerType.HEAD, LayerType.CONV
_ROUTER, _EXPERT, _MOE, _OTHER = LayerType.ROUTER, LayerType.EXPERT, LayerType.MOE, LayerType.OTHER

Types = Mapping[str, LayerType]
"""A name -> what is called so."""


@dataclass(frozen=True, slots=True)
class Family:
    """A family of models that share names.

    Attributes:
        name: What people call it.
        marks: Sets of module names; a model in which all names of one set occur is of the family.
        names: What a module called so is.
        top: The same, of modules directly below the model itself.
        classes: What a module of a class of this name is, where the words in the name would mislead.
    """

    name: str
    marks: tuple[frozenset[str], ...]
    names: Types = field(default_factory=dict[str, LayerType])
    top: Types = field(default_factory=dict[str, LayerType])
    classes: Types = field(default_factory=dict[str, LayerType])


def _names(of: LayerType, words: str) -> dict[str, LayerType]:
    return dict.fromkeys(words.split(), of)


def _marks(*sets: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(words.split()) for words in sets)


FAMILIES: Final[Sequence[Family]] = (
    Family(
        "gpt",
        _marks("c_attn", "wte", "query_key_value", "Wqkv"),
        _names(_ATTENTION, "c_attn query_key_value Wqkv")
        | _names(_MLP, "c_fc dense_h_to_4h dense_4h_to_h")
        | _names(_EMBEDDING, "wte wpe")
        | _names(_NORM, "ln_1 ln_2 ln_f"),
        # A linear layer with its weight transposed.
        classes=_names(_OTHER, "Conv1D"),
    ),
    Family(
        "llama",
        _marks("q_proj k_proj", "wq wk", "qkv_proj", "gate_up_proj", "gate_proj up_proj"),
        _names(_ATTENTION, "q_proj k_proj v_proj o_proj qkv_proj out_proj wq wk wv wo")
        | _names(_MLP, "gate_proj up_proj down_proj gate_up_proj w1 w2 w3"),
        top=_names(_HEAD, "output score"),
    ),
    Family(
        "transformer",
        _marks("fc1 fc2", "linear1 linear2", "DenseReluDense"),
        _names(_MLP, "fc1 fc2 linear1 linear2 DenseReluDense"),
    ),
    Family(
        "bert",
        _marks("query key value", "intermediate attention", "q_lin k_lin"),
        _names(_ATTENTION, "query key value q_lin k_lin v_lin out_lin")
        | _names(_MLP, "intermediate output lin1 lin2")
        | _names(_HEAD, "pooler"),
        top=_names(_HEAD, "cls qa_outputs"),
    ),
    Family(
        "vit",
        _marks("patch_embed", "patch_embeddings", "conv_proj"),
        _names(_EMBEDDING, "patch_embed patch_embeddings conv_proj") | _names(_ATTENTION, "qkv"),
        top=_names(_HEAD, "head heads head_dist fc_norm"),
    ),
    Family(
        "resnet",
        _marks("layer1 layer2"),
        _names(_CONV, "layer1 layer2 layer3 layer4 downsample"),
        top=_names(_HEAD, "fc"),
        classes=_names(_CONV, "BasicBlock Bottleneck"),
    ),
    Family(
        "moe",
        _marks("experts"),
        _names(_ROUTER, "gate router wg shared_expert_gate") | _names(_EXPERT, "experts shared_expert shared_experts"),
    ),
)
"""Where two families know a name, the earlier one says what it is."""

_WITHIN: Mapping[LayerType, frozenset[LayerType]] = {
    _EXPERT: frozenset(),
    _EMBEDDING: frozenset({_NORM}),
    _ATTENTION: frozenset({_NORM, _EMBEDDING}),
    _MLP: frozenset({_NORM, _CONV, _ROUTER, _EXPERT, _MOE}),
    _NORM: frozenset(),
}
"""What stands out from what it lies in; in what is not named here, everything does."""

_WORDS: tuple[tuple[LayerType, tuple[str, ...]], ...] = (
    (_ROUTER, ("router", "topkgate", "moegate")),
    (_EXPERT, ("expert",)),
    (_MOE, ("moe",)),
    (_ATTENTION, ("attention", "attn")),
    (_NORM, ("norm",)),
    (_EMBEDDING, ("embed",)),
    (_CONV, ("conv",)),
    (_MLP, ("mlp", "feedforward", "feed_forward", "ffn")),
    (_HEAD, ("head", "classifier")),
)

_WHOLE = re.compile(r"(DecoderLayer|EncoderLayer|TransformerLayer|TransformerBlock|Model|For[A-Z]\w*)$")
"""Classes of whole models and layers: the words in their names are those of the family (`Qwen2MoeDecoderLayer`)."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """What is known of the names in one model.

    Attributes:
        families: Names of the families it is of, in the order of `FAMILIES`; none: the fallback alone.
    """

    families: tuple[str, ...]
    _names: Types
    _top: Types
    _classes: Types

    @classmethod
    def of(cls, names: Iterable[str]) -> "Adapter":
        """The adapter of a model with modules of these names, the last components of their paths."""
        present = frozenset(names)
        found = [one for one in FAMILIES if any(mark <= present for mark in one.marks)]
        return cls(
            tuple(one.name for one in found),
            _earliest(one.names for one in found),
            _earliest(one.top for one in found),
            _earliest(one.classes for one in found),
        )

    def type_of(self, class_name: str, name: str, *, parent: LayerType, is_top: bool) -> LayerType:
        """What a module is; what its parent is, where neither its class nor its name says anything.

        Args:
            class_name: Its class, as the author wrote it.
            name: What its parent calls it.
            parent: What the parent is.
            is_top: Whether the parent is the model itself.
        """
        own = self._own(class_name, name, is_top=is_top)
        stands_out = own is not _OTHER and own in _WITHIN.get(parent, frozenset(LayerType))
        return own if stands_out else parent

    def _own(self, class_name: str, name: str, *, is_top: bool) -> LayerType:
        if is_top and name in self._top:
            return self._top[name]
        if name in self._names:
            return self._names[name]
        if class_name in self._classes:
            known = self._classes[class_name]
            return _spoken_of(name) if known is _OTHER else known
        return guess_type(class_name, name)


def _earliest(tables: Iterable[Types]) -> Types:
    merged: dict[str, LayerType] = {}
    for table in tables:
        merged = {**table, **merged}
    return merged


def guess_type(class_name: str, name: str) -> LayerType:
    """The semantic type a module's class, else its name, speaks of; OTHER where neither does."""
    own = _OTHER if _WHOLE.search(class_name) else _spoken_of(class_name)
    return _spoken_of(name) if own is _OTHER else own


def _spoken_of(text: str) -> LayerType:
    """The last type that a text speaks of: `Qwen2MoeRMSNorm` is a norm, `MultiheadAttention` no head."""
    text = text.lower()
    found = [(text.rfind(word) + len(word), of) for of, words in _WORDS for word in words if word in text]
    return max(found, key=lambda one: one[0])[1] if found else _OTHER

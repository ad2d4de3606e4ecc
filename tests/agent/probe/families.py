"""Small models with the names that the families of models really use; on the meta device, as nothing runs."""

import functools

from torch import nn


def named(**children: nn.Module) -> nn.Module:
    """A module with these children."""
    made = nn.Module()
    for name, child in children.items():
        made.add_module(name, child)
    return made


@functools.cache
def _class(name: str) -> type[nn.Module]:
    return type(name, (nn.Module,), {})


def of_class(name: str, **children: nn.Module) -> nn.Module:
    """A module of the class of this name with these children."""
    made = _class(name)()
    for child_name, child in children.items():
        made.add_module(child_name, child)
    return made


def linear() -> nn.Linear:
    """A layer that its class says nothing of."""
    return nn.Linear(2, 2, device="meta")


def norm() -> nn.LayerNorm:
    """A norm."""
    return nn.LayerNorm(2, device="meta")


def embedding() -> nn.Embedding:
    """An embedding."""
    return nn.Embedding(2, 2, device="meta")


def conv() -> nn.Conv2d:
    """A convolution."""
    return nn.Conv2d(1, 1, 1, device="meta")


def gpt() -> nn.Module:
    """GPT-2 as its authors and transformers name it: `Conv1D` is a linear layer there."""
    block = of_class(
        "GPT2Block",
        ln_1=norm(),
        attn=of_class("GPT2Attention", c_attn=of_class("Conv1D"), c_proj=of_class("Conv1D")),
        mlp=of_class("GPT2MLP", c_fc=of_class("Conv1D"), c_proj=of_class("Conv1D")),
    )
    body = of_class("GPT2Model", wte=embedding(), wpe=embedding(), h=nn.ModuleList([block]), ln_f=norm())
    return of_class("GPT2LMHeadModel", transformer=body, lm_head=linear())


def llama() -> nn.Module:
    """Llama and those after it."""
    attention = of_class(
        "LlamaAttention", q_proj=linear(), k_proj=linear(), v_proj=linear(), o_proj=linear(), q_norm=norm()
    )
    mlp = of_class("LlamaMLP", gate_proj=linear(), up_proj=linear(), down_proj=linear(), act_fn=nn.SiLU())
    layer = of_class("LlamaDecoderLayer", self_attn=attention, mlp=mlp, input_layernorm=of_class("LlamaRMSNorm"))
    body = of_class(
        "LlamaModel",
        embed_tokens=embedding(),
        layers=nn.ModuleList([layer]),
        norm=of_class("LlamaRMSNorm"),
        rotary_emb=of_class("LlamaRotaryEmbedding"),
    )
    return of_class("LlamaForCausalLM", model=body, lm_head=linear())


def llama_reference() -> nn.Module:
    """Llama as first published."""
    layer = of_class(
        "TransformerBlock",
        attention=of_class("Attention", wq=linear(), wk=linear(), wo=linear()),
        feed_forward=of_class("FeedForward", w1=linear(), w2=linear()),
        attention_norm=of_class("RMSNorm"),
        ffn_norm=of_class("RMSNorm"),
    )
    return of_class("Transformer", tok_embeddings=embedding(), layers=nn.ModuleList([layer]), output=linear())


def bert() -> nn.Module:
    """BERT, whose attention and whose feed-forward both end in an `output`."""
    inner = named(query=linear(), key=linear(), value=linear())
    attention = of_class(
        "BertAttention", self=inner, output=of_class("BertSelfOutput", dense=linear(), LayerNorm=norm())
    )
    layer = of_class(
        "BertLayer",
        attention=attention,
        intermediate=of_class("BertIntermediate", dense=linear()),
        output=of_class("BertOutput", dense=linear(), LayerNorm=norm()),
    )
    body = of_class(
        "BertModel",
        embeddings=of_class("BertEmbeddings", word_embeddings=embedding(), LayerNorm=norm()),
        encoder=of_class("BertEncoder", layer=nn.ModuleList([layer])),
        pooler=of_class("BertPooler", dense=linear()),
    )
    return of_class("BertForMaskedLM", bert=body, cls=named(predictions=named(decoder=linear())))


def vit() -> nn.Module:
    """A vision transformer as timm names it."""
    block = of_class(
        "Block",
        norm1=norm(),
        attn=of_class("Attention", qkv=linear(), proj=linear()),
        mlp=of_class("Mlp", fc1=linear(), fc2=linear()),
    )
    return of_class(
        "VisionTransformer",
        patch_embed=of_class("PatchEmbed", proj=conv(), norm=norm()),
        blocks=nn.Sequential(block, of_class("Block")),
        norm=norm(),
        head=linear(),
    )


def resnet() -> nn.Module:
    """A residual network as torchvision names it."""

    def block() -> nn.Module:
        return of_class("BasicBlock", conv1=conv(), bn1=nn.BatchNorm2d(1, device="meta"), relu=nn.ReLU())

    first = block()
    first.add_module("downsample", nn.Sequential(conv(), nn.BatchNorm2d(1, device="meta")))
    stages = {f"layer{at}": nn.Sequential(block() if at > 1 else first, block()) for at in (1, 2)}
    return of_class("ResNet", conv1=conv(), bn1=nn.BatchNorm2d(1, device="meta"), **stages, fc=linear())


def moe() -> nn.Module:
    """A mixture of experts as Qwen, Mixtral and DeepSeek name it; the family is in the name of every class."""
    expert = of_class("Qwen2MoeMLP", gate_proj=linear(), up_proj=linear(), w1=linear())
    sparse = of_class(
        "Qwen2MoeSparseMoeBlock",
        gate=linear(),
        experts=nn.ModuleList([expert, of_class("Qwen2MoeMLP")]),
        shared_expert=of_class("Qwen2MoeMLP", down_proj=linear()),
        shared_expert_gate=linear(),
    )
    layer = of_class(
        "Qwen2MoeDecoderLayer",
        self_attn=of_class("Qwen2MoeAttention", q_proj=linear(), k_proj=linear()),
        mlp=sparse,
        input_layernorm=of_class("Qwen2MoeRMSNorm"),
    )
    return of_class("Qwen2MoeForCausalLM", model=of_class("Qwen2MoeModel", layers=nn.ModuleList([layer])))


def t5() -> nn.Module:
    """T5, whose blocks hold a list of unlike layers, numbered too."""
    inner = [
        of_class("T5LayerSelfAttention", SelfAttention=of_class("T5Attention", q=linear()), layer_norm=norm()),
        of_class("T5LayerFF", DenseReluDense=of_class("T5DenseActDense", wi=linear())),
    ]
    blocks = nn.ModuleList([named(layer=nn.ModuleList(inner)), named(layer=nn.ModuleList())])
    return of_class("T5Model", shared=embedding(), encoder=named(block=blocks))


def transformer() -> nn.Module:
    """torch's own encoder."""
    layer = nn.TransformerEncoderLayer(2, 1, 2, device="meta")
    return named(embed=embedding(), encoder=nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))


def torchvision_vit() -> nn.Module:
    """A vision transformer as torchvision names it: its blocks are numbered behind a word."""
    layers = {f"encoder_layer_{at}": named(ln_1=norm(), self_attention=linear(), mlp=linear()) for at in (0, 1)}
    stack = nn.Sequential()
    for name, layer in layers.items():
        stack.add_module(name, layer)
    return of_class(
        "VisionTransformer", conv_proj=conv(), encoder=named(layers=stack, ln=norm()), heads=named(head=linear())
    )

"""PyTorch's own modules and models of one's own: no library, only types and attribute names."""

import pytest
import torch
from torch import Tensor, nn

from seedbed.errors import InputError
from seedbed.facts.fact import ParameterFact, branch_of
from seedbed.facts.table import parameter_facts
from seedbed.init import initialize_


def parts_of(model: nn.Module) -> dict[str, ParameterFact]:
    return {part.name: part for fact in parameter_facts(model) for part in fact.parts()}


def roles_of(model: nn.Module) -> dict[str, str]:
    return {name: part.role for name, part in parts_of(model).items()}


def drawn(model: nn.Module) -> nn.Module:
    """``model`` with nothing left of what it held before."""
    for parameter in model.parameters():
        nn.init.constant_(parameter, torch.nan)
    initialize_(model, "gamma", gamma=0.5, seed=2)
    assert all(parameter.isfinite().all() for parameter in model.parameters())
    return model


def test_multihead_attention_by_any_name():
    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.mha = nn.MultiheadAttention(8, 2, batch_first=True)

    parts = parts_of(Block())
    assert {name: (part.role, part.shape, part.rows) for name, part in parts.items()} == {
        "mha.q.weight": ("attn.q", (8, 8), (0, 8)),
        "mha.k.weight": ("attn.k", (8, 8), (8, 16)),
        "mha.v.weight": ("attn.v", (8, 8), (16, 24)),
        "mha.in_proj_bias": ("bias", (24,), None),
        "mha.out_proj.weight": ("attn.o", (8, 8), None),
        "mha.out_proj.bias": ("bias", (8,), None),
    }
    assert {branch_of(name) for name, part in parts.items() if part.is_matrix} == {"mha"}
    assert parts["mha.out_proj.weight"].writes_residual
    x = torch.randn(2, 3, 8)
    assert drawn(Block()).mha(x, x, x)[0].isfinite().all()


def test_multihead_attention_with_other_widths_and_extra_keys():
    attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=4, add_bias_kv=True, batch_first=True)
    parts = parts_of(attention)
    told = {name: (part.role, part.d_in) for name, part in parts.items() if part.role != "bias"}
    assert told == {
        "q_proj_weight": ("attn.q", 8),
        "k_proj_weight": ("attn.k", 6),
        "v_proj_weight": ("attn.v", 4),
        "bias_k": ("token", 8),
        "bias_v": ("token", 8),
        "out_proj.weight": ("attn.o", 8),
    }
    drawn(attention)


@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_layers_of_pytorch(norm_first):
    layer = nn.TransformerDecoderLayer(8, 2, 12, norm_first=norm_first, batch_first=True)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 12, norm_first=norm_first, batch_first=True), 3, enable_nested_tensor=False
    )
    for model, path, n_layers in ((layer, "", 0), (encoder, "layers.2.", 3)):
        parts = parts_of(model)
        up, down, v = (parts[f"{path}{name}.weight"] for name in ("linear1", "linear2", "self_attn.v"))
        assert (up.role, up.d_in, up.maps) == ("mlp.up", 8, 2)
        assert (down.role, down.d_in, down.writes_residual) == ("mlp.down", 12, True)
        assert (v.role, v.maps, v.rows) == ("attn.v", 2, (16, 24))
        assert {part.placement for part in parts.values()} == {"pre" if norm_first else "post"}
        assert (up.layer, up.n_layers) == ((2, 3) if n_layers else (None, 0))
        assert parts[f"{path}norm2.weight"].role == "norm"
    cross = parts_of(layer)
    assert cross["multihead_attn.k.weight"].role == "attn.k"
    assert cross["multihead_attn.out_proj.weight"].writes_residual
    assert drawn(encoder)(torch.randn(2, 3, 8)).isfinite().all()


class Placed(nn.Module):
    placement = "post"

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.mlp, self.norm = inner, nn.LayerNorm(4)


def test_the_nearest_block_says_where_the_norms_are():
    model = nn.Sequential(Placed(nn.Linear(4, 4)), Placed(nn.TransformerEncoderLayer(4, 1, 4, norm_first=True)))
    model.append(nn.Linear(4, 4))
    told = {fact.name: fact.placement for fact in parameter_facts(model)}
    assert told["0.mlp.weight"] == told["0.norm.weight"] == told["1.norm.weight"] == "post"
    assert told["1.mlp.linear1.weight"] == told["1.mlp.norm1.weight"] == "pre"
    assert told["2.weight"] is None


class TimmAttention(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.q_norm, self.k_norm = nn.LayerNorm(d // 2), nn.LayerNorm(d // 2)


class Mlp(nn.Module):
    def __init__(self, d: int, hidden: int, gated: bool = False):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(d, 2 * hidden if gated else hidden), nn.Linear(hidden, d)


class LayerScale(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.full((d,), 1e-5))


class TimmBlock(nn.Module):
    def __init__(self, d: int, gated: bool):
        super().__init__()
        self.norm1, self.attn, self.ls1 = nn.LayerNorm(d), TimmAttention(d), LayerScale(d)
        self.norm2, self.mlp, self.ls2 = nn.LayerNorm(d), Mlp(d, 12, gated), LayerScale(d)


class PatchEmbed(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.proj = nn.Conv2d(3, d, 4, 4)


class TimmShaped(nn.Module):
    """The names, shapes and module types of timm's VisionTransformer."""

    def __init__(self, d: int = 8, gated: bool = False):
        super().__init__()
        self.cls_token = nn.Parameter(torch.zeros(1, 1, d))
        self.reg_token = nn.Parameter(torch.zeros(1, 4, d))
        self.pos_embed = nn.Parameter(torch.zeros(1, 9, d))
        self.patch_embed = PatchEmbed(d)
        self.blocks = nn.Sequential(TimmBlock(d, gated), TimmBlock(d, gated))
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, 5)


TIMM_ROLES = {
    "cls_token": "token", "reg_token": "token", "pos_embed": "pos", "patch_embed.proj.weight": "patch",
    "blocks.1.norm1.weight": "norm", "blocks.1.norm1.bias": "norm.bias",
    "blocks.1.attn.q.weight": "attn.q", "blocks.1.attn.k.weight": "attn.k", "blocks.1.attn.v.weight": "attn.v",
    "blocks.1.attn.qkv.bias": "bias", "blocks.1.attn.q_norm.weight": "norm",
    "blocks.1.attn.proj.weight": "attn.o", "blocks.1.attn.proj.bias": "bias", "blocks.1.ls1.gamma": "kept",
    "blocks.1.mlp.fc1.weight": "mlp.up", "blocks.1.mlp.fc2.weight": "mlp.down", "blocks.1.ls2.gamma": "kept",
    "norm.weight": "norm", "head.weight": "head", "head.bias": "bias",
}  # fmt: skip


def test_a_vision_transformer_of_timms_shape():  # case 33
    parts = parts_of(TimmShaped())
    assert {name: parts[name].role for name in TIMM_ROLES} == TIMM_ROLES
    assert [parts[name].d_in for name in ("cls_token", "reg_token", "pos_embed")] == [8, 8, 8]
    assert parts["patch_embed.proj.weight"].d_in == 3 * 4 * 4
    assert (parts["blocks.1.mlp.fc2.weight"].layer, parts["blocks.1.mlp.fc2.weight"].n_layers) == (1, 2)
    model = TimmShaped()
    initialize_(model, "gamma", gamma=0.5)
    assert model.get_parameter("blocks.0.ls1.gamma")[0].item() == pytest.approx(1e-5)
    assert model.cls_token.any()


def test_a_first_map_of_twice_the_rows_is_a_gate_and_an_up_map():
    parts = parts_of(TimmShaped(gated=True))
    gate, up = parts["blocks.0.mlp.gate.weight"], parts["blocks.0.mlp.up.weight"]
    assert [(part.role, part.rows, part.maps) for part in (gate, up)] == [
        ("mlp.gate", (0, 12), 3),
        ("mlp.up", (12, 24), 3),
    ]
    facts = parameter_facts(TimmShaped(gated=True), roles={"fc1.weight": "mlp.up"})
    assert not any(fact.blocks for fact in facts if fact.name.endswith("fc1.weight"))


def test_timm_itself():
    try:
        import timm
    except Exception as error:  # its torchvision may not load beside this build of torch
        pytest.skip(f"timm does not import: {error}")
    model = timm.create_model("vit_tiny_patch16_224", depth=2)
    roles = roles_of(model)
    assert {name: roles[name] for name in TIMM_ROLES if name in roles} == {
        name: role for name, role in TIMM_ROLES.items() if name in roles
    }
    drawn(model)


class TorchvisionShaped(nn.Module):
    """The names and module types of torchvision's VisionTransformer."""

    def __init__(self, d: int = 8):
        super().__init__()
        self.conv_proj = nn.Conv2d(3, d, 4, 4)
        self.class_token = nn.Parameter(torch.zeros(1, 1, d))
        self.encoder = nn.Module()
        self.encoder.pos_embedding = nn.Parameter(torch.zeros(1, 5, d))
        self.encoder.layers = nn.Sequential()
        for i in range(2):
            block = nn.Module()
            block.ln_1, block.self_attention, block.ln_2 = nn.LayerNorm(d), nn.MultiheadAttention(d, 2), nn.LayerNorm(d)
            block.mlp = nn.Sequential(nn.Linear(d, 12), nn.GELU(), nn.Dropout(0), nn.Linear(12, d), nn.Dropout(0))
            self.encoder.layers.add_module(f"encoder_layer_{i}", block)
        self.encoder.ln = nn.LayerNorm(d)
        self.heads = nn.Sequential()
        self.heads.add_module("head", nn.Linear(d, 5))


def test_a_vision_transformer_of_torchvisions_shape():
    parts = parts_of(drawn(TorchvisionShaped()))
    block = "encoder.layers.encoder_layer_1."
    expected = {
        "conv_proj.weight": "patch",
        "class_token": "token",
        "encoder.pos_embedding": "pos",
        f"{block}self_attention.q.weight": "attn.q",
        f"{block}self_attention.out_proj.weight": "attn.o",
        f"{block}mlp.0.weight": "mlp.up",
        f"{block}mlp.3.weight": "mlp.down",
        "heads.head.weight": "head",
    }
    assert {name: parts[name].role for name in expected} == expected
    assert (parts[f"{block}mlp.3.weight"].layer, parts[f"{block}mlp.3.weight"].n_layers) == (1, 2)
    assert parts[f"{block}mlp.3.weight"].writes_residual


class PlainViT(nn.Module):
    """A vision transformer as people write it."""

    def __init__(self, d: int = 8):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, d, 4, 4)
        self.cls_token = nn.Parameter(torch.zeros(d))
        self.registers = nn.Parameter(torch.zeros(2, d))
        self.pos_embed = nn.Parameter(torch.zeros(7, d))
        self.blocks = nn.ModuleList(nn.TransformerEncoderLayer(d, 2, 16, batch_first=True) for _ in range(2))
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 5))

    def forward(self, images: Tensor) -> Tensor:  # [B, 3, 8, 8] -> [B, 5]
        patches = self.patch_embed(images).flatten(2).mT  # [B, 4, D]
        extra = torch.cat((self.cls_token[None], self.registers)).expand(len(images), -1, -1)
        x = torch.cat((extra, patches), dim=1) + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(x[:, 0])


def test_a_vision_transformer_written_by_hand():
    model = drawn(PlainViT())
    parts = parts_of(model)
    expected = {"patch_embed.weight": "patch", "cls_token": "token", "registers": "token", "pos_embed": "pos"}
    expected |= {"head.0.weight": "norm", "head.1.weight": "head", "blocks.1.linear2.weight": "mlp.down"}
    assert {name: parts[name].role for name in expected} == expected
    assert (parts["cls_token"].shape, parts["cls_token"].d_in, parts["cls_token"].d_out) == ((8,), 8, 1)
    assert (parts["registers"].shape, parts["registers"].d_in) == ((2, 8), 8)
    assert model(torch.randn(2, 3, 8, 8)).isfinite().all()


def test_convolutions_have_their_fan_in():
    facts = [
        parameter_facts(layer)[0]
        for layer in (nn.Conv1d(6, 8, 3), nn.Conv2d(6, 9, (3, 5), groups=3), nn.Conv3d(2, 4, 2))
    ]
    assert [(fact.role, fact.d_in, fact.d_out) for fact in facts] == [("conv", 18, 8), ("conv", 30, 9), ("conv", 16, 4)]


@pytest.mark.parametrize(("kernel", "stride", "groups"), [(4, 2, 1), (2, 2, 1), (3, 1, 2), (5, 3, 1), (2, 3, 2)])
def test_a_transposed_convolution_keeps_the_variance_of_its_input(kernel, stride, groups):
    torch.manual_seed(0)
    layer = nn.ConvTranspose1d(32, 64, kernel, stride, bias=False, groups=groups)
    (fact,) = parameter_facts(layer)
    assert fact.d_out == 64
    assert fact.stored_shape == tuple(layer.weight.shape)
    initialize_(layer, "lecun")
    with torch.no_grad():
        out = layer(torch.randn(8, 32, 400))[..., 20:-20]
    assert out.pow(2).mean().item() == pytest.approx(1.0, rel=0.1)


def test_the_padding_row_and_tied_tables():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.lm_head = nn.Linear(4, 8, bias=False)  # comes first, and is an embedding all the same
            self.embed = nn.Embedding(8, 4, padding_idx=-1)
            self.embed.weight = self.lm_head.weight

    (fact,) = parameter_facts(Tied())
    assert (fact.name, fact.role, fact.zero_row, fact.tied) == ("lm_head.weight", "embed", 7, ("embed.weight",))


def test_a_shared_module_is_one_fact():
    block = nn.TransformerEncoderLayer(4, 1, 4)
    model = nn.ModuleList([block, block])
    facts = parameter_facts(model)
    assert len(facts) == len(list(model.parameters()))
    assert all(fact.tied == (f"1.{fact.name[2:]}",) for fact in facts)


class Attention(nn.Module):
    """Fused, or with three maps of the same names that the blocks of a fused one have."""

    def __init__(self, fused: bool, d: int = 16):
        super().__init__()
        maps = {"qkv": nn.Linear(d, 3 * d)} if fused else {name: nn.Linear(d, d) for name in "qkv"}
        self.attn = nn.ModuleDict({**maps, "o": nn.Linear(d, d)})


@pytest.mark.parametrize("law", ["gamma", "gpt2", "balanced", "xavier", "orthogonal", "small_init"])
def test_fused_is_separate(law):  # case 32
    stacks = [nn.ModuleDict({"layers": nn.ModuleList([Attention(fused)])}) for fused in (True, False)]
    for model in stacks:
        initialize_(model, law, seed=4)
    fused, separate = (model["layers"][0].attn for model in stacks)
    whole = torch.cat([separate[name].weight for name in "qkv"])
    assert torch.equal(fused["qkv"].weight, whole)
    assert torch.equal(fused["o"].weight, separate["o"].weight)


@pytest.mark.parametrize(("rows", "d_out"), [(49, 16), (12, 16)])
def test_rows_that_do_not_add_up_are_refused(rows, d_out):
    attention = nn.ModuleDict({"attn": nn.ModuleDict({"qkv": nn.Linear(16, rows), "proj": nn.Linear(16, d_out)})})
    with pytest.raises(InputError, match=rf"attn.qkv.weight: its blocks q, k, v have \d+ rows, the matrix has {rows};"):
        parameter_facts(attention)
    facts = parameter_facts(attention, roles={"qkv.weight": "attn.qkv"})
    assert not facts[0].blocks


def test_conv1d_is_a_transposed_linear_map():  # case 32
    conv1d = pytest.importorskip("transformers").pytorch_utils.Conv1D
    stored = nn.ModuleDict({"mlp": nn.ModuleDict({"c_fc": conv1d(96, 32), "c_proj": conv1d(32, 96)})})
    linear = nn.ModuleDict({"mlp": nn.ModuleDict({"c_fc": nn.Linear(32, 96), "c_proj": nn.Linear(96, 32)})})
    reports = [initialize_(model, "gamma", gamma=1.0, seed=4) for model in (stored, linear)]
    assert [row.std for row in reports[0].rows] == [row.std for row in reports[1].rows]
    for name in ("c_fc", "c_proj"):
        assert torch.equal(stored["mlp"][name].weight.mT, linear["mlp"][name].weight)
    target = {row.name: row.target_std for row in reports[0].rows}
    assert target["mlp.c_fc.weight"] == pytest.approx(1 / 32)
    assert target["mlp.c_proj.weight"] == pytest.approx(1 / 96)

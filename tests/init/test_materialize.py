"""Models built on the meta device end up as those built in memory do, bit for bit (case 29)."""

import pytest
import torch
from torch import Tensor, nn

from seedbed import initialize_, materialize_
from seedbed.config import Config
from seedbed.errors import InputError
from seedbed.model import Decoder

SMALL = {
    "vocab_size": 40, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 3,
    "num_key_value_heads": 1, "head_dim": 8, "pad_token_id": 4, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def decoder() -> nn.Module:
    overrides = ["vocab_size=40", "d_model=32", "n_layers=2", "tied=true", "attention.n_heads=2", "max_seq_len=16"]
    return Decoder(Config.load(None, [f"model.{override}" for override in overrides]).model)


def llama() -> nn.Module:
    from transformers import AutoModelForCausalLM, LlamaConfig

    scaling = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 16}  # fmt: skip
    return AutoModelForCausalLM.from_config(LlamaConfig(**SMALL, tie_word_embeddings=True, rope_parameters=scaling))


def gpt2() -> nn.Module:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=40, n_embd=24, n_layer=2, n_head=3, n_positions=16, bos_token_id=1, eos_token_id=2)
    return GPT2LMHeadModel(config)


def gemma3() -> nn.Module:
    from transformers import Gemma3ForCausalLM, Gemma3TextConfig

    return Gemma3ForCausalLM(Gemma3TextConfig(**SMALL, sliding_window=8))  # embed_scale and two rotations are buffers


def t5() -> nn.Module:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=40, d_model=24, d_kv=8, d_ff=32, num_layers=2, num_heads=3, decoder_start_token_id=0)
    return T5ForConditionalGeneration(config)


def logits(model: nn.Module) -> Tensor:
    ids = torch.arange(10)[None]
    more = {"decoder_input_ids": ids} if type(model).__name__.startswith("T5") else {}
    out = model.eval()(ids, **more)
    return out if isinstance(out, Tensor) else out.logits


def tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters under all their names, and buffers, persistent or not."""
    return {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers())}


def on_meta(build) -> nn.Module:
    with torch.device("meta"):
        return build()


@pytest.mark.parametrize("build", [decoder, llama, gpt2, gemma3, t5])
def test_meta_equals_eager(build):
    eager, model = build(), on_meta(build)
    assert materialize_(model) is model
    assert all(parameter.isnan().all() for parameter in model.parameters())  # the sentinel
    assert initialize_(model, "gpt2", seed=5) == initialize_(eager, "gpt2", seed=5)
    expected, found = tensors(eager), tensors(model)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
        assert found[name].requires_grad == tensor.requires_grad, name
    for a, first in expected.items():  # tied here, tied there
        assert [b for b in found if found[b] is found[a]] == [b for b in expected if expected[b] is first], a
    assert torch.equal(logits(model), logits(eager))


def test_what_stands_is_left_alone():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), on_meta(lambda: nn.BatchNorm1d(3)))
    with torch.no_grad():
        model[1].running_mean.fill_(7.0)  # pyright: ignore
    before = {name: tensor.clone() for name, tensor in tensors(model).items() if not tensor.is_meta}
    random = torch.get_rng_state()
    materialize_(model)
    assert torch.equal(torch.get_rng_state(), random)
    for name, tensor in before.items():
        assert torch.equal(tensors(model)[name], tensor), name
    assert model[2].running_var.tolist() == [1, 1, 1]  # pyright: ignore
    assert model[2].weight.isnan().all()


class Mask(nn.Module):
    """A buffer of every kind, one parameter that the module itself knows, one that it draws, and one to be drawn."""

    def __init__(self, written: str):
        super().__init__()
        self.written = written
        self.map = nn.Linear(3, 3, bias=False)
        self.scale, self.decay = nn.Parameter(torch.empty(2)), nn.Parameter(torch.empty(4))
        self.register_buffer("mask", torch.empty(3, 3, dtype=torch.bool))
        self.register_buffer("ids", torch.empty(3, dtype=torch.int64), persistent=False)
        self.register_buffer("share", torch.empty(3, dtype=torch.bfloat16))
        self.reset_buffers()

    def reset_parameters(self) -> None:
        nn.init.constant_(self.scale, 2.5)
        nn.init.uniform_(self.decay)

    def reset_buffers(self) -> None:
        if "mask" in self.written:
            self.mask.copy_(torch.ones(3, 3, dtype=torch.bool).tril())
        if "ids" in self.written:
            self.ids = torch.arange(3)  # put in its place instead of written into
        elif "more" in self.written:
            self.ids = torch.zeros(len(self.ids) + 1, dtype=torch.int64)  # never of the size it had
        if "share" in self.written:
            self.share.fill_(0.5)
        elif "some" in self.written:
            self.share[1:].fill_(0.5)


KEPT = {"scale|decay": "kept"}


def test_modules_of_ones_own_write_their_buffers_and_what_is_kept():
    model, other, seeded = (on_meta(lambda: Mask("mask ids share")) for _ in range(3))
    torch.manual_seed(1)
    materialize_(model, roles=KEPT)
    torch.manual_seed(2)
    materialize_(other, roles=KEPT)
    materialize_(seeded, roles=KEPT, seed=1)
    assert model.mask.tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert model.ids.tolist() == [0, 1, 2]
    assert model.share.tolist() == [0.5] * 3
    assert model.scale.tolist() == [2.5] * 2
    assert torch.equal(model.decay, other.decay)
    assert not torch.equal(model.decay, seeded.decay)
    assert {(t.device.type, t.dtype) for t in model.buffers()} == {
        ("cpu", torch.bool), ("cpu", torch.int64), ("cpu", torch.bfloat16),
    }  # fmt: skip
    assert model.map.weight.isnan().all()
    kept = [row.name for row in initialize_(model, roles=KEPT).rows if row.distribution == "kept"]
    assert kept == ["scale", "decay"]
    assert model.scale.tolist() == [2.5] * 2


@pytest.mark.parametrize(
    ("written", "lost"),
    [
        ("ids share", "mask"),
        ("mask share", "ids"),
        ("mask more share", "ids"),
        ("mask ids", "share"),
        ("mask ids some", "share"),
    ],
)
def test_a_buffer_that_nothing_computes_is_named_and_the_module_untouched(written, lost):
    model = on_meta(lambda: Mask(written))
    before = tensors(model)
    with pytest.raises(InputError, match=f"nothing computes {lost}: "):
        materialize_(model, roles=KEPT)
    assert all(tensor is before[name] and tensor.is_meta for name, tensor in tensors(model).items())


def test_a_tensor_that_is_a_plain_attribute_is_named():
    model = on_meta(lambda: nn.ReLU())
    model.table = torch.empty(3, device="meta")
    with pytest.raises(InputError, match="nothing computes table"):
        materialize_(model)


def test_code_of_a_module_that_fails_is_named():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.empty(3, device="meta"))

        def reset_buffers(self):
            raise RuntimeError("no table today")

    model = Broken()
    with pytest.raises(InputError, match=r"own initialization of Broken fails \(no table today\)"):
        materialize_(model)
    assert model.table.is_meta


def test_a_parameter_that_no_rule_covers_is_refused_first():
    model = on_meta(lambda: Mask("mask ids share"))
    with pytest.raises(InputError, match="no rule covers scale, decay"):
        materialize_(model)
    assert all(tensor.is_meta for tensor in tensors(model).values())


def test_what_is_kept_and_never_written_is_asked_for():
    model = on_meta(lambda: Mask("mask ids share"))
    model.reset_parameters = lambda: None
    materialize_(model, roles=KEPT)
    with pytest.raises(InputError, match="scale, decay would be kept as it is, but holds NaN"):
        initialize_(model, roles=KEPT)
    assert model.map.weight.isnan().all()
    with torch.no_grad():
        model.scale.fill_(1.0)
        model.decay.fill_(1.0)
    initialize_(model, roles=KEPT)

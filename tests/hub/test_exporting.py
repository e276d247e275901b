"""An export says what the run says, for Transformers as anybody has it, and generates as the run should."""

import ast
import errno
import inspect
import json
import resource
import sys

import pytest
import torch
from decoders import draw
from exports import CONTROL, ROWS, padded_run

from seedbed.data.template import CHATML
from seedbed.errors import InputError
from seedbed.hub import exporting
from seedbed.hub.exporting import export
from seedbed.hub.flat_files import FLAT_FILES, flat_files
from seedbed.hub.models import open_model
from seedbed.model import attention, decoder, norm, passes, rope
from seedbed.train.whole import average

transformers = pytest.importorskip("transformers")
TOLD = {"trust_remote_code": True, "local_files_only": True}
GREEDY = {"do_sample": False, "max_new_tokens": 12}


def quiet(_: str) -> None:
    pass


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return padded_run(tmp_path_factory.mktemp("padded"))


@pytest.fixture(scope="module")
def folder(run, tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "export"
    export(run, out, quiet)
    return out


def load(folder, **told):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **TOLD, **told)


def logits(model, ids):
    with torch.no_grad():
        return model(input_ids=ids).logits


def test_it_says_what_the_run_says(run, folder):
    ours, theirs, ids = open_model(run), load(folder), draw(3, 32, vocab=ROWS)
    assert type(theirs).__module__.startswith("transformers_modules.")
    with torch.no_grad():
        assert torch.equal(logits(theirs, ids), ours.module(ids))
    base = transformers.AutoModel.from_pretrained(folder, **TOLD)
    assert torch.equal(base(input_ids=ids).last_hidden_state, theirs.model(input_ids=ids).last_hidden_state)
    assert base.is_backend_compatible()


def test_its_configuration_has_the_names_that_others_look_for(run, folder):
    config = transformers.AutoConfig.from_pretrained(folder, **TOLD)
    known = {"vocab_size": ROWS, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 16}
    known |= {"num_key_value_heads": 2, "max_position_embeddings": 32, "tie_word_embeddings": False}
    assert {name: getattr(config, name) for name in known} == known
    assert transformers.AutoConfig.from_pretrained(folder, num_hidden_layers=1, **TOLD).num_hidden_layers == 1
    tokenizer = open_model(run).tokenizer
    turn = tokenizer.special_tokens["<|im_end|>"]
    settings = transformers.GenerationConfig.from_pretrained(folder)
    assert (settings.bos_token_id, settings.eos_token_id, settings.pad_token_id) == (0, [1, turn], 1)
    assert settings.suppress_tokens == list(range(tokenizer.vocab_size, ROWS))
    assert None not in settings.eos_token_id


def test_a_vocabulary_that_is_padded_never_gives_ids_above_it(folder):
    model, size = load(folder), len(transformers.AutoTokenizer.from_pretrained(folder, **TOLD))
    with torch.no_grad():
        model.lm_head.weight[size:] = 100 * model.lm_head.weight[:1]  # the likeliest, or the unlikeliest
        model.lm_head.weight[size + 1 :] *= -1
    prompt = torch.tensor([[0, 40, 50, 60]])
    assert int(logits(model, prompt)[0, -1].argmax()) >= size
    room = transformers.ContinuousBatchingConfig(num_blocks=16, max_batch_tokens=32)
    batch = model.generate_batch(prompt.tolist(), continuous_batching_config=room, max_new_tokens=12)
    found = [torch.tensor(next(iter(batch.values())).generated_tokens)]
    for told in (GREEDY, GREEDY | {"num_beams": 3}, GREEDY | {"do_sample": True, "top_k": 0, "temperature": 9.0}):
        found.append(model.generate(prompt, **told))
    assert all(int(ids.max()) < size for ids in found)


def test_generation_ends_with_the_turn(folder):
    model, tokenizer = load(folder), transformers.AutoTokenizer.from_pretrained(folder, **TOLD)
    for end in model.generation_config.eos_token_id:
        forced = transformers.LogitsProcessorList([_Forced(end, at=7)])
        assert model.generate(torch.tensor([[0, 40, 50]]), logits_processor=forced, **GREEDY)[0, -1] == end
        assert model.generate(torch.tensor([[0, 40, 50]]), logits_processor=forced, **GREEDY).shape[1] == 8
    assert tokenizer.pad_token == tokenizer.eos_token == "<|eos|>"


class _Forced(transformers.LogitsProcessor):
    """Takes one id at a place, and never an end before it."""

    def __init__(self, token: int, at: int):
        self.token, self.at = token, at

    def __call__(self, ids, scores):
        scores[:, [1, 3]] = -torch.inf
        if ids.shape[1] == self.at:
            scores[:, self.token] = torch.inf
        return scores


def test_the_tokenizer_reads_a_text_as_the_run_does(run, folder):
    ours, theirs = open_model(run).tokenizer, transformers.AutoTokenizer.from_pretrained(folder, **TOLD)
    for text in ("the seed bed", "x \U0001f600\n\n 12", ""):
        assert theirs(text).input_ids == ours.start + ours.encode(text)
    turns = [{"role": "user", "content": "grow"}]
    assert theirs.chat_template == CHATML
    rendered = theirs.apply_chat_template(turns, add_generation_prompt=True, return_dict=False)
    assert rendered.count(0) == 1
    assert theirs.decode(rendered) == "<|bos|><|im_start|>user\ngrow<|im_end|>\n<|im_start|>assistant\n"
    assert set(CONTROL) <= set(theirs.all_special_tokens)
    assert theirs(["the", "the seed bed grows"], padding=True, return_tensors="pt").attention_mask[0, 0] == 0


def test_saved_again_it_is_the_same(folder, tmp_path):
    model, ids = load(folder), draw(1, 16, vocab=ROWS)
    model.save_pretrained(tmp_path / "again")
    assert {*FLAT_FILES} <= {file.name for file in (tmp_path / "again").iterdir()}
    assert torch.equal(logits(load(tmp_path / "again"), ids), logits(model, ids))
    model.resize_token_embeddings(ROWS + 7)
    model.save_pretrained(tmp_path / "larger")
    assert torch.equal(logits(load(tmp_path / "larger"), ids)[..., :ROWS], logits(model, ids)[..., :ROWS])


def test_a_model_from_the_configuration_is_drawn(folder):
    config = transformers.AutoConfig.from_pretrained(folder, **TOLD)
    model = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=True)
    assert all(parameter.isfinite().all() for parameter in model.parameters())


def test_half_the_bits_in_shards(run, tmp_path):
    found = export(run, tmp_path / "e", quiet, dtype="bfloat16", shard_size="30KB")
    assert 0 < found.rounding < 0.5
    assert max(case.difference for case in found.parity) < 1e-4
    assert len(found.files) > 1
    assert (tmp_path / "e" / "model.safetensors.index.json").is_file()
    assert {p.dtype for p in load(tmp_path / "e").parameters()} == {torch.bfloat16}
    assert open_model(run).module.embed.weight.dtype == torch.float32
    with pytest.raises(InputError, match="float8"):
        export(run, tmp_path / "f", quiet, dtype="float8")
    for size in ("0", "abc", "-5GB", "0GB", "12B", "5 GB"):
        with pytest.raises(InputError, match=f"--shard-size {size}: give a number above 0"):
            export(run, tmp_path / "f", quiet, shard_size=size)


def test_the_card_says_how_it_was_made(run, folder):
    card = (folder / "README.md").read_text()
    told = json.loads((run / "receipt.json").read_text())
    row = next(row for row in told["rows"] if row["role"] == "mlp.down")
    assert f"| mlp.down | 2 | {row['target_std']:.4g} |" in card
    assert "Law `gamma`, gamma=1.0; seed 0" in card
    assert "2 steps, " in card
    assert card.count("left-padded") >= 2
    assert "| attention.gate | elementwise |" in card
    assert "`<|eos|>` (1) or `<|im_end|>` (3)" in card
    assert "\n\n\n" not in card


def test_what_is_refused(run, folder, tmp_path, monkeypatch):
    with pytest.raises(InputError, match="already"):
        export(_native(tmp_path / "native", run), tmp_path / "e", quiet)
    with pytest.raises(InputError, match="already"):
        export(folder, tmp_path / "e", quiet)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    with pytest.raises(InputError, match="choose another name"):
        export(run, tmp_path / "mine", quiet)
    whole = exporting._write_model

    def harmed(model, *rest):
        with torch.no_grad():
            model.model.layers[1].attn.o.weight[0, 0] += 1
        whole(model, *rest)
        with torch.no_grad():
            model.model.layers[1].attn.o.weight[0, 0] -= 1

    monkeypatch.setattr(exporting, "_write_model", harmed)
    with pytest.raises(InputError, match="differ by"):
        export(run, tmp_path / "e", quiet)
    assert not (tmp_path / "e").exists()
    assert {file.name for file in tmp_path.iterdir()} == {"native", "mine"}


def test_a_full_disk_leaves_nothing(run, tmp_path):
    """A limit on the size of files stands in for it."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as error:
            export(run, tmp_path / "out", quiet)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert error.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


def test_the_mean_of_checkpoints_goes_out_too(run, tmp_path):
    step = run / "checkpoints" / "step_00000002"
    average([step, step], tmp_path / "mean")
    export(tmp_path / "mean", tmp_path / "e", quiet)
    ids = draw(1, 16, vocab=ROWS)
    with torch.no_grad():
        assert torch.equal(logits(load(tmp_path / "e"), ids), open_model(run).module(ids))
    card = (tmp_path / "e" / "README.md").read_text()
    assert f"mean of the weights of 2 checkpoints: `{step}`, `{step}`." in card


def _native(folder, run):
    config = transformers.LlamaConfig(
        vocab_size=ROWS, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    open_model(run).tokenizer.save(folder)
    return folder


def test_weights_that_are_not_finite_in_another_type_are_refused(run, tmp_path, monkeypatch):
    opened = open_model(run)
    with torch.no_grad():
        opened.module.head.weight[0, 0] = 1e30
    monkeypatch.setattr(exporting, "open_model", lambda _: opened)
    with pytest.raises(InputError, match="head.weight is not finite in float16"):
        export(run, tmp_path / "e", quiet, dtype="float16")


def test_the_flat_files_are_the_sources_of_the_model():
    files = flat_files()
    assert set(files) == set(FLAT_FILES)
    allowed = {"torch", "transformers"} | sys.stdlib_module_names
    for name, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                assert {alias.name.split(".")[0] for alias in node.names} <= allowed
            elif isinstance(node, ast.ImportFrom):
                beside = node.level == 1 and f"{node.module}.py" in FLAT_FILES
                assert beside or (node.module or "").split(".")[0] in allowed, f"{name}: {node.module}"
        assert "seedbed." not in text.split('"""', 2)[2]
    layers = files["layers_seedbed.py"]
    for part in (attention.Attention, decoder.Block, decoder.SwiGLU, norm.RMSNorm, passes.Rotated, rope.rotations):
        source = inspect.getsource(part)
        assert "\n".join(line.split("  # pyright")[0] for line in source.splitlines()) in layers
    assert "class Decoder" not in layers
    assert "def attend" not in layers

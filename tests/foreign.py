"""Tiny random checkpoints of Transformers, each with a tokenizer; saved once a session, tests only read them (torch is
imported late: conftest sets its threads first)."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import sentences

VOCAB, LENGTH = 320, 64
SMALL = {
    "vocab_size": VOCAB, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": LENGTH, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 2, "head_dim": 4}
GPT = {
    "vocab_size": VOCAB, "n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": LENGTH, "bos_token_id": 0,
    "eos_token_id": 1,
}  # fmt: skip

# family -> (configuration, its options); the model is what Transformers makes of it to predict the next token
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", GPT),
    "gpt_neox": ("GPTNeoXConfig", SMALL),
    "phi3": ("Phi3Config", {**GROUPED, "original_max_position_embeddings": LENGTH}),
    "llama": ("LlamaConfig", {**GROUPED, "tie_word_embeddings": False}),
    "qwen3": ("Qwen3Config", {**GROUPED, "tie_word_embeddings": True}),
    "olmo2": ("Olmo2Config", GROUPED),
    "gemma2": ("Gemma2Config", {**GROUPED, "sliding_window": 8}),
    "mistral": ("MistralConfig", {**GROUPED, "sliding_window": 8}),
    "mixtral": ("MixtralConfig", {**GROUPED, "num_local_experts": 3}),
    "lfm3": ("Lfm3Config", {**GROUPED, "layer_types": ["full_attention"] * 2, "use_sandwich_norm": False,
                            "rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1e6}}}),
    "bloom": ("BloomConfig", {**GPT, "hidden_size": 16}),
    "cohere": ("CohereConfig", {**GROUPED, "logit_scale": 0.25}),
    "mamba": ("MambaConfig", {"vocab_size": VOCAB, "hidden_size": 16, "state_size": 4, "num_hidden_layers": 2,
                              "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1}),
}  # fmt: skip


def build(family: str, scale: float = 20.0, **options: Any):
    """A random model of ``family``, its matrices ``scale`` times as large as drawn, so that its scores differ."""
    import torch

    transformers = pytest.importorskip("transformers")
    name, known = FAMILIES[family]
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, name)(**{**known, **options}))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(scale)
    return model.eval()


def save_pickles(model, folder: Path, shards: int = 1) -> Path:
    """As releases of Transformers up to 4 saved: one file, or several with an index."""
    import torch

    folder.mkdir(parents=True)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    state = model.state_dict()
    if shards == 1:
        torch.save(state, folder / "pytorch_model.bin")
        return folder
    names, places = list(state), {}
    for number in range(shards):
        file = f"pytorch_model-{number + 1:05d}-of-{shards:05d}.bin"
        part = names[number::shards]
        torch.save({name: state[name] for name in part}, folder / file)
        places |= dict.fromkeys(part, file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return folder


def save_gguf(model, tokenizer: Path, file: Path) -> Path:
    """As llama.cpp's converter writes a Llama, GPT-2 or Qwen3 in fp32: Llama's rows of queries and keys in another
    order, GPT-2's maps as (d_out, d_in)."""
    gguf = pytest.importorskip("gguf")
    config = model.config
    kind = {"llama": "LLAMA", "gpt2": "GPT2", "qwen3": "QWEN3"}[config.model_type]
    writer = gguf.GGUFWriter(file, config.model_type)
    writer.add_context_length(LENGTH)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(getattr(config, "intermediate_size", 4 * config.hidden_size))
    writer.add_head_count(config.num_attention_heads)
    if kind == "GPT2":
        writer.add_layer_norm_eps(config.layer_norm_epsilon)
    else:
        writer.add_head_count_kv(config.num_key_value_heads)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
        writer.add_rope_dimension_count(config.head_dim)
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    writer.add_vocab_size(VOCAB)
    _write_tokenizer(writer, json.loads((tokenizer / "tokenizer.json").read_text(encoding="utf-8")))
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, kind), config.num_hidden_layers)
    for name, parameter in model.named_parameters():
        values = parameter.detach()
        if kind == "GPT2" and name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            values = values.T
        if kind == "LLAMA" and ("q_proj" in name or "k_proj" in name):
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            values = values.view(heads, 2, -1, values.shape[1]).transpose(1, 2).reshape(values.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), values.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def _write_tokenizer(writer: Any, content: dict[str, Any]) -> None:
    vocab = content["model"]["vocab"] | {token["content"]: token["id"] for token in content["added_tokens"]}
    special = {token["id"] for token in content["added_tokens"]}
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(sorted(vocab, key=vocab.__getitem__))
    writer.add_token_types([3 if i in special else 1 for i in range(len(vocab))])
    writer.add_token_merges([" ".join(pair) for pair in content["model"]["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)


@pytest.fixture(scope="session")
def foreign_tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A byte-level tokenizer of VOCAB tokens, as Transformers reads it."""
    from seedbed.data.bpe import train_tokenizer

    folder = tmp_path_factory.mktemp("foreign") / "tokenizer"
    train_tokenizer(sentences(300, seed=1), VOCAB, folder)
    return folder


@pytest.fixture(scope="session")
def foreign_folder(tmp_path_factory: pytest.TempPathFactory, foreign_tokenizer_folder: Path) -> Callable[[str], Path]:
    """The folder of a family's checkpoint (safetensors) with its tokenizer; made when it is first asked for."""
    root = tmp_path_factory.mktemp("families")

    def folder(family: str) -> Path:
        place = root / family
        if not place.exists():
            build(family).save_pretrained(place)
            for name in ("tokenizer.json", "tokenizer_config.json"):
                shutil.copy(foreign_tokenizer_folder / name, place / name)
        return place

    return folder


SEQUENCE = {"Sequence": {"id": "A", "type_id": 0}}


def mark_beginnings(folder: Path) -> Path:
    """Let the tokenizer in ``folder`` put a begin of text before each text, as many do."""
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    token = content["added_tokens"][0]
    name = token["content"]
    post = {"type": "TemplateProcessing", "pair": [SEQUENCE, {"Sequence": {"id": "B", "type_id": 0}}]}
    post["single"] = [{"SpecialToken": {"id": name, "type_id": 0}}, SEQUENCE]
    post["special_tokens"] = {name: {"id": name, "ids": [token["id"]], "tokens": [name]}}
    file.write_text(json.dumps(content | {"post_processor": post}))
    return folder

"""Tokenizers of other makers: byte-level, SentencePiece, Unigram, WordPiece; what is lossless is so exactly."""

import json
import sys
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_texts import TEXTS
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, trainers
from tokenizers import Tokenizer as Backend

from seedbed.data.foreign import import_tokenizer
from seedbed.data.tokenizer import load_tokenizer
from seedbed.data.tokenizer_json import Spelling
from seedbed.errors import InputError

BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA = ["<unk>", "<s>", "</s>"]
T5 = ["<pad>", "</s>", "<unk>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LOSSLESS = [
    "gpt2",
    "gpt2 with a prefix space",
    "qwen without a normalizer",
    "llama2",
    "mistral",
    "strips a space",
    "byte unigram",
]
LOSSY = ["qwen", "t5", "bert"]
WITH_SPACE_BEFORE = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
SPACE_TAKEN_OFF = decoders.Sequence(
    [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
)
ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2581"), max_size=40)
WORDS = st.lists(st.sampled_from(["", "a"]) | ANY_TEXT).map(" ".join)  # spaces, also before the text, are hardest


def assigned(backend: Backend, **parts) -> Backend:
    """The backend with these parts, which the library lets be assigned only."""
    for name, value in parts.items():
        setattr(backend, name, value)
    return backend


def byte_level(add_prefix_space=False, **parts) -> Backend:
    backend = assigned(
        Backend(models.BPE()),
        pre_tokenizer=pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space),
        decoder=decoders.ByteLevel(),
        **parts,
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(TEXTS, trainer)
    backend.add_special_tokens(["<|endoftext|>"])
    backend.add_tokens([AddedToken("<think>", special=False, normalized=False)])
    return backend


def sentencepiece_bpe(**parts) -> Backend:
    """As Llama 2: bytes where characters are missing, U+2581 for the space, a space before the text."""
    backend = assigned(Backend(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True)))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=[*LLAMA, *BYTES], show_progress=False)
    backend.train_from_iterator(TEXTS * 2, trainer)
    content = json.loads(backend.to_str())
    content["added_tokens"] = content["added_tokens"][:3]  # the bytes are no control tokens
    backend = Backend.from_str(json.dumps(content))
    return assigned(backend, decoder=SPACE_TAKEN_OFF, **parts)


def pieces_of_unigram() -> list[tuple[str, float]]:
    backend = assigned(Backend(models.Unigram()), pre_tokenizer=pre_tokenizers.Metaspace())
    trainer = trainers.UnigramTrainer(vocab_size=120, special_tokens=T5, unk_token="<unk>", show_progress=False)
    backend.train_from_iterator(TEXTS * 3, trainer)
    return [(token, score) for token, score in json.loads(backend.to_str())["model"]["vocab"]]


def byte_unigram() -> Backend:
    pieces = [*pieces_of_unigram(), *[(byte, -30.0) for byte in BYTES]]
    backend = assigned(
        Backend(models.Unigram(pieces, unk_id=2, byte_fallback=True)),
        normalizer=WITH_SPACE_BEFORE,
        decoder=SPACE_TAKEN_OFF,
    )
    backend.add_special_tokens(T5)
    return backend


def t5() -> Backend:
    split = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    backend = assigned(
        Backend(models.Unigram(pieces_of_unigram(), unk_id=2)),
        normalizer=normalizers.NFKC(),
        pre_tokenizer=pre_tokenizers.Sequence(split),
        decoder=decoders.Metaspace(),
    )
    backend.add_special_tokens(T5)
    return backend


def bert() -> Backend:
    backend = assigned(
        Backend(models.WordPiece(unk_token="[UNK]")),
        normalizer=normalizers.BertNormalizer(),
        pre_tokenizer=pre_tokenizers.BertPreTokenizer(),
        decoder=decoders.WordPiece(),
    )
    trainer = trainers.WordPieceTrainer(vocab_size=200, special_tokens=BERT, show_progress=False)
    backend.train_from_iterator(TEXTS * 2, trainer)
    return backend


KINDS = {
    "gpt2": (byte_level, {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}),
    "gpt2 with a prefix space": (lambda: byte_level(add_prefix_space=True), {"eos_token": "<|endoftext|>"}),
    "qwen without a normalizer": (byte_level, {"bos_token": None, "eos_token": "<|endoftext|>"}),
    "qwen": (lambda: byte_level(normalizer=normalizers.NFC()), {"bos_token": None, "eos_token": "<|endoftext|>"}),
    "llama2": (
        lambda: sentencepiece_bpe(normalizer=WITH_SPACE_BEFORE, pre_tokenizer=None),
        {"bos_token": "<s>", "eos_token": {"__type": "AddedToken", "content": "</s>"}},
    ),
    "mistral": (
        lambda: sentencepiece_bpe(pre_tokenizer=pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
        {"bos_token": "<s>", "eos_token": "</s>"},
    ),
    "strips a space": (  # that it did not add
        lambda: sentencepiece_bpe(normalizer=normalizers.Replace(" ", "\u2581"), pre_tokenizer=None),
        {"bos_token": "<s>", "eos_token": "</s>"},
    ),
    "byte unigram": (byte_unigram, {"eos_token": "</s>"}),
    "t5": (t5, {"eos_token": "</s>", "pad_token": "<pad>"}),
    "bert": (bert, {"sep_token": "[SEP]", "cls_token": "[CLS]"}),
}


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("foreign")
    for kind, (make, config) in KINDS.items():
        (root / kind).mkdir()
        (root / kind / "tokenizer.json").write_text(make().to_str(), encoding="utf-8")
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **config}
        (root / kind / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return root


@pytest.fixture(scope="session")
def loaded(folders):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {kind: load_tokenizer(folders / kind) for kind in KINDS}


@pytest.mark.parametrize("kind", LOSSLESS)
@given(text=WORDS, more=WORDS)
def test_lossless_tokenizers_keep_any_text_and_count_its_bytes(loaded, kind, text, more):
    tokenizer = loaded[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.lossless
    assert tokenizer.decode(ids) == text
    assert tokenizer.token_bytes()[ids].sum() == len(text.encode())
    assert tokenizer.decode(ids + tokenizer.encode(more)) == text + more  # parts can be joined


@pytest.mark.parametrize("kind", LOSSY)
def test_lossy_tokenizers_load_with_a_warning(folders, kind):
    with pytest.warns(UserWarning, match="text does not survive this tokenizer"):
        tokenizer = load_tokenizer(folders / kind)
    assert not tokenizer.lossless
    text = "hello world the dog"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_lossless_tokenizers_load_without_a_warning(folders):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind in LOSSLESS:
            load_tokenizer(folders / kind)


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_transformers(folders, loaded, kind):
    """But for the space before a text, which lossless tokenizers do without."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(folders / kind)
    for text in (*TEXTS, "Größe \U0001f600 e\u0301", "a  b\n\n c"):
        prefixed = kind in ("gpt2 with a prefix space", "llama2", "mistral", "byte unigram")
        ours = loaded[kind].encode(f" {text}" if prefixed else text)
        assert ours == theirs(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize("kind", KINDS)
def test_control_tokens_inside_a_text_stay_text(loaded, kind):
    """Case 15. Models that look for whole words (Unigram) would find them."""
    tokenizer = loaded[kind]
    control = set(tokenizer.special_tokens.values())
    unknown = {tokenizer.token_id("<unk>"), tokenizer.token_id("[UNK]")} if not tokenizer.lossless else set()
    for token in tokenizer.special_tokens:
        if tokenizer.token_id(token) in unknown:
            continue
        for text in (token, f"a{token}b", f" {token} {token}", f"x{token}{token}", f"<{token}>"):
            ids = tokenizer.encode(text)
            assert not (control - unknown) & set(ids)
            assert tokenizer.encode_batch(["a", text]) == [tokenizer.encode("a"), ids]
            if tokenizer.lossless:
                assert tokenizer.decode(ids) == text
                assert tokenizer.token_bytes()[ids].sum() == len(text.encode())


def test_control_tokens_in_another_form_of_unicode_stay_text(loaded):
    """A normalizer makes the wide form into the plain one."""
    assert loaded["t5"].eos_id not in loaded["t5"].encode("a＜/s＞b")


def test_names_and_ids(loaded):
    facts = {kind: (t.bos_token, t.bos_id, t.eos_token, t.eos_id) for kind, t in loaded.items()}
    assert facts["gpt2"] == ("<|endoftext|>", 300, "<|endoftext|>", 300)
    assert facts["qwen"] == (None, None, "<|endoftext|>", 300)
    assert facts["llama2"] == ("<s>", 1, "</s>", 2)
    assert facts["t5"] == (None, None, "</s>", 1)
    assert facts["bert"] == (None, None, "[SEP]", 3)
    assert loaded["bert"].special_tokens == {token: i for i, token in enumerate(BERT)}
    assert loaded["llama2"].padded_size == loaded["llama2"].vocab_size == 400


def test_bytes_of_tokens_by_kind(loaded):
    def n_bytes(kind, token):
        return int(loaded[kind].token_bytes()[loaded[kind].token_id(token)])

    assert n_bytes("gpt2", "Ġworld") == 6
    assert n_bytes("gpt2", "<think>") == 7  # added, but no control token
    assert n_bytes("gpt2", "<|endoftext|>") == 0
    assert n_bytes("llama2", "<0x0A>") == n_bytes("llama2", "\u2581") == 1
    assert n_bytes("llama2", "\u2581world") == 6
    assert n_bytes("llama2", "</s>") == n_bytes("t5", "<unk>") == 0
    assert n_bytes("t5", "\u2581world") == 6
    assert n_bytes("bert", "##s") == 1
    assert n_bytes("bert", "hello") == 5
    assert n_bytes("bert", "月") == 3


def test_bytes_that_affixes_of_words_do_not_stand_for():
    plain = Spelling(byte_level=False, metaspace=False, byte_fallback=False, prefix="", suffix="")
    assert plain.n_bytes("<0x0A>") == 6
    assert plain.n_bytes("\u2581") == 3
    assert plain._replace(suffix="</w>").n_bytes("é</w>") == 2
    assert plain._replace(suffix="</w>", byte_level=True).n_bytes("Ã©</w>") == 2
    assert plain._replace(byte_fallback=True).n_bytes("<0x0A>") == 1


def test_ids_without_a_token_are_known(folders, tmp_path):
    content = json.loads((folders / "gpt2" / "tokenizer.json").read_text(encoding="utf-8"))
    content["added_tokens"][0]["id"] = 301
    content["added_tokens"][1]["id"] = 310
    content["model"]["vocab"] |= {"<|endoftext|>": 301, "<think>": 310}
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    tokenizer = load_tokenizer(tmp_path)
    assert (tokenizer.vocab_size, tokenizer.eos_id) == (311, 301)
    assert np.flatnonzero(~tokenizer.known()).tolist() == [300, *range(302, 310)]


def test_end_of_text_that_only_the_settings_name_is_a_control_token(folders, tmp_path):
    content = json.loads((folders / "gpt2" / "tokenizer.json").read_text(encoding="utf-8"))
    content["added_tokens"] = []
    content["model"]["vocab"]["<end>"] = 300
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<end>"}')
    tokenizer = load_tokenizer(tmp_path)
    assert tokenizer.special_tokens == {"<end>": 300}
    assert tokenizer.decode([*tokenizer.encode("a<end>"), tokenizer.eos_id]) == "a<end>"


# import


def test_import_through_transformers(folders, tmp_path):
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(folders / "mistral")
    theirs.chat_template = "{{ messages[0].content }}"
    theirs.save_pretrained(tmp_path / "saved")
    assert (tmp_path / "saved" / "chat_template.jinja").is_file()
    imported = import_tokenizer(str(tmp_path / "saved"), tmp_path / "t")
    assert imported.folder == tmp_path / "t"
    assert imported.chat_template == theirs.chat_template
    assert (imported.bos_id, imported.eos_id, imported.lossless) == (1, 2, True)
    assert imported.encode(" hello") == theirs("hello", add_special_tokens=False)["input_ids"]
    assert {"tokenizer.json", "tokenizer_config.json", "commit.json"} == {p.name for p in (tmp_path / "t").iterdir()}


def test_import_of_a_vocabulary_without_tokenizer_json(tmp_path):
    pytest.importorskip("transformers")
    words = [*BERT, "hello", "world", "##s"]
    (tmp_path / "slow").mkdir()
    (tmp_path / "slow" / "vocab.txt").write_text("\n".join(words))
    (tmp_path / "slow" / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.warns(UserWarning, match="does not survive"):
        tokenizer = import_tokenizer(str(tmp_path / "slow"), tmp_path / "t")
    assert [tokenizer.token_id(word) for word in words] == list(range(8))
    assert tokenizer.encode("Hello worlds") == [5, 6, 7]


def test_import_of_nothing_or_of_a_tokenizer_without_an_end_is_refused(folders, tmp_path):
    transformers = pytest.importorskip("transformers")
    with pytest.raises(InputError, match=r"Transformers cannot read a tokenizer there: .*[^:\s]$") as error:
        import_tokenizer(str(tmp_path), tmp_path / "t")
    assert "\n" not in str(error.value)
    for name in ("./a b", ""):
        with pytest.raises(InputError, match="neither a folder here nor .* hub: Repo id"):
            import_tokenizer(name, tmp_path / "t")
    backend = Backend.from_file(str(folders / "gpt2" / "tokenizer.json"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(tmp_path / "endless")
    with pytest.raises(InputError, match="endless/tokenizer_config.json: no eos_token; add"):
        import_tokenizer(str(tmp_path / "endless"), tmp_path / "t")
    assert not (tmp_path / "t").exists()


def test_name_on_the_hub_is_asked_for_once(folders, tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    asked = []

    def snapshot(name, allow_patterns, **_):
        asked.append(name)
        if name != "some/one":
            raise OSError("no network\nread the documentation")
        return str(folders / "gpt2")

    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot)
    assert import_tokenizer("some/one", tmp_path / "t").eos_token == "<|endoftext|>"
    with pytest.raises(InputError, match="^no/body: neither a folder here .*: no network read the documentation$"):
        import_tokenizer("no/body", tmp_path / "u")
    assert asked == ["some/one", "no/body"]


def test_import_meets_damage_before_transformers_does(folders, tmp_path, monkeypatch):
    transformers = pytest.importorskip("transformers")
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", lambda *_, **__: pytest.fail("was called"))
    content = json.loads((folders / "gpt2" / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["vocab"]["far"] = 4_000_000_000
    (tmp_path / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(InputError, match="tokenizer.json: the id of 'far' is 4000000000, above 16777215"):
        import_tokenizer(str(tmp_path), tmp_path / "t")


def test_import_does_not_replace_anything_but_a_tokenizer(folders, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x")
    with pytest.raises(InputError, match="is not a folder made here"):
        import_tokenizer(str(folders / "gpt2"), tmp_path / "mine")


def test_import_without_transformers_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"pip install 'seedbed\[hf\]'"):
        import_tokenizer("gpt2", tmp_path / "t")

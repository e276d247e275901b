"""The configuration of a Seedbed model, as Transformers reads it."""

import json
from types import SimpleNamespace
from typing import Any

from transformers import PreTrainedConfig


class SeedbedConfig(PreTrainedConfig):
    """``architecture`` is the model section of the run's configuration, all of it. The names that libraries look for
    (hidden_size, num_attention_heads, ...) are made from it.
    """

    model_type = "seedbed"
    keys_to_ignore_at_inference = ["cache", "past_key_values"]  # noqa: RUF012

    def __init__(self, architecture: dict[str, Any] | None = None, use_cache: bool = True, **kwargs: Any):
        self.architecture = architecture or {}
        self.use_cache = use_cache
        attention, ffn = (self.architecture.get(part, {}) for part in ("attention", "ffn"))
        standard = {
            "vocab_size": self.architecture.get("vocab_size"),
            "hidden_size": self.architecture.get("d_model"),
            "intermediate_size": ffn.get("d_ff"),
            "num_hidden_layers": self.architecture.get("n_layers"),
            "num_attention_heads": attention.get("n_heads"),
            "num_key_value_heads": attention.get("n_kv_heads"),
            "head_dim": attention.get("head_dim"),
            "max_position_embeddings": self.architecture.get("max_seq_len"),
            "tie_word_embeddings": self.architecture.get("tied"),
            "bos_token_id": None,
            "eos_token_id": None,
            "pad_token_id": None,
        }
        super().__init__(**standard | kwargs)  # what was changed since (a resized vocabulary) stands there too

    @property
    def parts(self) -> Any:
        """The architecture as attributes, as the layers read it."""
        return json.loads(json.dumps(self.architecture), object_hook=lambda found: SimpleNamespace(**found))

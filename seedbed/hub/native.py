"""Our weights as a class of Transformers, or the one that ships with a checkpoint, stores them."""

from torch import Tensor

from seedbed.hub.families import FAMILIES, to_theirs
from seedbed.model import Decoder


def to_native(model: Decoder, family: str) -> dict[str, Tensor]:
    """The parameters of ``model`` by the names of ``family``, a key of FAMILIES that computes what it does
    (`seedbed.hub.family_configs.their_config` says which).

    The same numbers of the same types, so that a model that was imported goes out as it came in; a tied head is not
    there, as in their files. Tensors are contiguous, and share memory with the model where the layout is the same.
    """
    found: dict[str, Tensor] = {}
    for name, parameter in model.named_parameters():
        found |= to_theirs(FAMILIES[family], model, name, parameter.detach())
    return found

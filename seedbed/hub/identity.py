"""Is one model another one, and are measurements that were kept still of it?"""

import hashlib
import json

import torch
from torch import nn

from seedbed.hub.checkpoints import Checkpoint, fingerprint
from seedbed.hub.models import LanguageModel


def identity(opened: Checkpoint | LanguageModel) -> str:
    """SHA-256 of all that decides what is measured: the weights (what tells their files apart, whatever these are
    called; without files the parameters in memory), the configuration, and of a model that reads the tokenizer.
    """
    weights = sorted(fingerprint(opened).values())
    tokenizer = None
    if isinstance(opened, LanguageModel):
        weights = weights or [_parameters(opened.module)]
        tokenizer = opened.tokenizer.hash
    return hashlib.sha256(json.dumps([weights, opened.configuration, tokenizer]).encode()).hexdigest()


def _parameters(module: nn.Module) -> str:
    """SHA-256 of the names and values of all parameters."""
    digest = hashlib.sha256()
    for name, parameter in module.named_parameters():
        digest.update(name.encode())
        digest.update(parameter.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()

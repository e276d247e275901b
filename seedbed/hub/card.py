"""The model card of an export: what the model is, how it was initialized and trained, and how to load it."""

import json
import re
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import jinja2

import seedbed
from seedbed.config.load import to_yaml
from seedbed.data.tokenizer import Tokenizer
from seedbed.hub.flat_files import FLAT_FILES
from seedbed.hub.newest import weights_of
from seedbed.model import Decoder
from seedbed.train.metrics import read_metrics
from seedbed.train.run import IMPORTED, RECEIPT, flat, read_config, run_around
from seedbed.train.whole import AVERAGE

if TYPE_CHECKING:
    from seedbed.hub.exporting import Exported

_OUTSIDE = ("embed", "pos", "head")
_EVALS = 10
"""Rows of held-out losses at most, the last ones."""


def model_card(found: "Exported", source: Path, model: Decoder, tokenizer: Tokenizer) -> str:
    """The card of what was exported from the checkpoint ``source``, as Markdown."""
    config, receipt = read_config(source), read_receipt(source)
    outside = sum(p.numel() for name, p in model.named_parameters() if name.split(".")[0] in _OUTSIDE)
    tokens = {i: token for token, i in tokenizer.special_tokens.items()}
    state = {"step": 0} | _read(source / "state.json")
    environment = jinja2.Environment(trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["count"] = "{:,}".format
    template = environment.from_string(Path(__file__).with_name("card.md").read_text(encoding="utf-8"))
    text = template.render(
        found=found,
        name=Path(found.folder).name,
        body=found.parameters - outside,
        model=config.model,
        known=int(tokenizer.known().sum()),
        code=FLAT_FILES,
        ends=[(tokens[i], i) for i in found.end_ids],
        chat=tokenizer.chat_template is not None,
        architecture=flat(config.model.model_dump(mode="json")).items(),
        receipt={"plan": None, "imported": None, "init_from": None} | receipt,
        licence=receipt.get(IMPORTED, {}).get("card", {}).get("general.license"),
        roles=_roles(receipt),
        state=state,
        mean_of=[row["checkpoint"] for row in _read(source / AVERAGE).get("mean_of", ())],
        store=config.data.store,
        evals=_evals(source, state["step"]),
        configuration=to_yaml(config).strip(),
        hashes=[(file.name, digest) for file, digest in weights_of(source).items()],
        versions={"seedbed": seedbed.__version__} | {name: version(name) for name in ("torch", "transformers")},
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"  # what was left out leaves empty lines


def read_receipt(source: Path) -> dict[str, Any]:
    """The receipt of a checkpoint, empty where it has none: a mean of weights."""
    return _read(source / RECEIPT)


def _read(file: Path) -> dict[str, Any]:
    """What a JSON file of the checkpoint says, which is whole; a mean of weights has no state."""
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def _roles(receipt: dict[str, Any]) -> list[dict[str, Any]]:
    """Target and measured std of what was drawn, by role, in the order of the receipt; means over the matrices."""
    drawn = [row for row in receipt.get("rows", ()) if row["target_std"]]
    roles = dict.fromkeys(row["role"] for row in drawn)
    groups = {role: [row for row in drawn if row["role"] == role] for role in roles}
    return [
        {
            "role": role,
            "count": len(rows),
            "target": fmean(row["target_std"] for row in rows),
            "std": fmean(row["std"] for row in rows),
        }
        for role, rows in groups.items()
    ]


def _evals(source: Path, step: int) -> list[dict[str, Any]]:
    """The held-out losses of the run up to the checkpoint; none where it lies in no run."""
    run = run_around(source)
    rows = [] if run is None else read_metrics(run)
    return [row for row in rows if row["kind"] == "eval" and row["step"] <= step][-_EVALS:]

"""What `seedbed preflight` does besides measuring arms: counts parameters, finds the gammas of balanced branches."""

from dataclasses import asdict
from typing import TYPE_CHECKING

from seedbed.cli.output import console, print_json, table
from seedbed.errors import InputError

if TYPE_CHECKING:
    from seedbed.config import Config
    from seedbed.data.split import Batch
    from seedbed.data.store import Store


def heldout_batch(config: "Config", store: "Store", sequences: int) -> "Batch":
    """The first held-out sequences, as many and as long as measuring takes seconds for.

    Raises InputError where nothing is held out.
    """
    from seedbed.analysis.resources import measured_shape
    from seedbed.data.split import Batch

    heldout = store.split("heldout")
    if len(heldout) == 0:
        raise InputError(f"data.store={config.data.store} holds nothing out to measure on; prepare it with --heldout")
    rows, length = measured_shape(config, min(sequences, len(heldout)), heldout.seq_len)
    return Batch(*(tokens[:, :length] for tokens in heldout.windows(range(rows))))


def balanced(config: "Config", ratio: float, sequences: int, as_json: bool) -> None:
    """Find and print the gamma of each branch at which it is ``ratio`` of its input, on held-out tokens."""
    from seedbed.analysis.balance import balance
    from seedbed.train.setup import resolve

    config, store = resolve(config)
    found = balance(config.model, ratio, config.init, heldout_batch(config, store, sequences), config.run.seed)
    by_role = {role: f"{gamma}" for role, gamma in found.by_role.items()}
    by_role |= {branch.family: f"{branch.gamma:.4f}" for branch in found.branches}
    told = ", ".join(f"{role}: {gamma}" for role, gamma in by_role.items())
    overrides = ["init.law=gamma", f"init.gamma={found.gamma}", f"init.by_role={{{told}}}"]
    if as_json:
        print_json({**asdict(found), "overrides": overrides})
        return
    title = f"γ at which ‖branch‖/‖e‖ is {ratio:g} at width {config.model.d_model}, on {found.tokens:,} held-out tokens"
    rows = [[b.family, f"{b.gamma:.4f}", f"{b.analytic:.4f}", f"{b.ratio:.4f}"] for b in found.branches]
    console().print(title, soft_wrap=True)
    console().print(table("", ["branch", "γ found", "γ constant in width", "ratio reached"], rows))
    if found.replaced:
        given = ", ".join(f"{role}: {gamma:g}" for role, gamma in found.replaced.items())
        console().print(f"they take the place of init.by_role {{{given}}}", soft_wrap=True)
    console().print(f"\nuse it with: {' '.join([*overrides[:2], repr(overrides[2])])}", soft_wrap=True)


def counts(config: "Config", as_json: bool) -> None:
    """Print the parameters by role."""
    from seedbed.analysis.resources import non_embedding, parameter_counts

    if config.model.vocab_size is None:
        if config.data.store is None:
            raise InputError("model.vocab_size is not set and there is no data.store to take it from; set one of them")
        from seedbed.train.setup import resolve

        config, _ = resolve(config)
    by_role = parameter_counts(config.model)
    total, inner = sum(count.parameters for count in by_role), non_embedding(by_role)
    if as_json:
        print_json({"parameters": total, "non_embedding": inner, "roles": [asdict(count) for count in by_role]})
        return
    rows = [[count.role, f"{count.tensors:,}", f"{count.parameters:,}"] for count in by_role]
    rows += [
        ["total", f"{sum(c.tensors for c in by_role):,}", f"{total:,}"],
        ["without embeddings and head", "", f"{inner:,}"],
    ]
    console().print(table(f"{total / 1e9:.3f}B parameters", ["role", "tensors", "parameters"], rows))

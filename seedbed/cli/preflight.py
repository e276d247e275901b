"""seedbed preflight CONFIG"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seedbed.cli.output import Json, Overrides, console, note, print_json, table
from seedbed.errors import InputError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from seedbed.analysis.preflight import Arm, Resources
    from seedbed.config import Config, InitConfig

Arms = Annotated[
    list[str] | None,
    typer.Option("--init", help="An initialization to set beside: a law and options, gamma,gamma=0.5. Repeatable."),
]


def preflight(
    path: Annotated[str, typer.Argument(metavar="CONFIG", help="YAML or JSON file.")],
    overrides: Overrides = None,
    init: Arms = None,
    params_only: Annotated[bool, typer.Option("--params-only", help="Only count parameters; needs no data.")] = False,
    sequences: Annotated[int, typer.Option(min=1, help="Held-out sequences to measure on.")] = 8,
    as_json: Json = False,
) -> None:
    """Say what a configuration will do before it is trained: plan, norms, stream, first loss, memory and time."""
    from seedbed.config import Config
    from seedbed.optim.schedule import validate

    config = Config.load(path, overrides or [])
    validate(config.train.steps, config.optim.schedule)
    if params_only:
        _counts(config, as_json)
        return
    if config.train.init_from is not None:
        raise InputError(
            f"train.init_from={config.train.init_from}: preflight measures initializations, and this run starts from "
            "weights; leave it out with train.init_from=null"
        )
    arms, resources = measure(config, [config.init, *(parse_init(text) for text in init or [])], sequences)
    if as_json:
        print_json(arms_json(arms, resources))
    else:
        for part in (*arm_tables(arms), *resource_lines(resources)):
            console().print(part)


def parse_init(text: str) -> "InitConfig":
    """``"gamma,gamma=0.5"`` -> InitConfig. Raises InputError with a suggestion."""
    from seedbed.config import Config

    law, *options = text.split(",")
    if not all("=" in option for option in options):
        raise InputError(f"--init {text}: write LAW or LAW,option=value, for example gamma,gamma=0.5")
    try:
        return Config.load(None, [f"init.law={law}", *(f"init.{option}" for option in options)]).init
    except InputError as error:
        raise InputError(f"--init {text}: {error}") from None


def measure(config: "Config", inits: "list[InitConfig]", sequences: int) -> "tuple[list[Arm], Resources]":
    """Measure each initialization on the first held-out sequences of the store, then time a step."""
    from seedbed.analysis.preflight import estimate_resources, measure_arm, memory_parts
    from seedbed.model import Decoder
    from seedbed.train.setup import resolve

    config, store = resolve(config)
    heldout, training = store.split("heldout"), store.split("train")
    if len(heldout) == 0:
        raise InputError(f"data.store={config.data.store} holds nothing out to measure on; prepare it with --heldout")
    assert config.train.micro_batch_size
    memory = memory_parts(config, training.seq_len)
    note(f"preflight: the run will need about {sum(memory.values()) / 2**20:,.0f} MiB, and so does this")
    batch = heldout.windows(range(min(sequences, len(heldout))))
    model = Decoder(config.model)
    arms = []
    for init in inits:
        note(f"preflight: {init.law} {' '.join(f'{k}={v}' for k, v in init.options.items())}")
        arms.append(measure_arm(model, init, config.run.seed, batch))
    note("preflight: timing a step")
    timed = training.windows([i % len(training) for i in range(config.train.micro_batch_size)])
    return arms, estimate_resources(model, config, timed, memory)


def arm_tables(arms: "list[Arm]") -> "list[RenderableType]":
    """Plan, masking, stream and first loss, the arms side by side."""
    from seedbed.analysis.preflight import norm_table, plan_table
    from seedbed.measure.residual import USUAL_EPS

    titles = [arm.title for arm in arms]
    plan = [
        [name, role, str(count), shape, *laws] for name, role, count, shape, laws in plan_table([a.plan for a in arms])
    ]
    residual = [arm.residual for arm in arms]
    flow = [
        [f"layer {i}: {what}", *(f"{getattr(r.layers[i], field):.3g}" for r in residual)]
        for i in range(len(residual[0].layers))
        for what, field in (("attention / stream", "attn"), ("mlp / stream", "mlp"), ("flow ‖h−e‖/‖e‖", "flow"))
    ]
    first = [
        ["rms of the embedded input", *(f"{r.embed_rms:.3g}" for r in residual)],
        ["first loss, nats a token", *(f"{arm.loss:.4f}" for arm in arms)],
        ["ln V", *(f"{arm.logits.uniform_loss:.4f}" for arm in arms)],
        ["std of the logits", *(f"{arm.logits.variance**0.5:.3g}" for arm in arms)],
        ["largest |logit|", *(f"{arm.logits.max_abs:.3g}" for arm in arms)],
    ]
    masking = [
        table(
            f"\nMasking: share of ε in σ² + ε at {whose} ε = {eps:g}",
            ["norm", *titles],
            [[row[0], *(f"{100 * share:.2g} %" for share in row[column])] for row in norm_table(arms)],
        )
        for column, whose, eps in ((1, "the model’s", residual[0].norms[0].eps), (2, "the usual", USUAL_EPS))
    ]
    return [
        table("Plan", ["parameter", "role", "tensors", "shape", *titles], plan, left=2),
        *masking,
        table(f"\nResidual stream, on {residual[0].tokens:,} held-out tokens", ["", *titles], flow),
        table("\nFirst step", ["", *titles], first),
    ]


def resource_lines(resources: "Resources") -> "list[RenderableType]":
    from seedbed.train.progress import duration

    rows = [[part, f"{size / 2**20:,.1f}"] for part, size in resources.memory.items()]
    rows.append(["sum", f"{sum(resources.memory.values()) / 2**20:,.1f}"])
    return [
        table("\nMemory of the run, MiB", ["part", "MiB"], rows),
        f"\n{resources.steps:,} steps of {resources.step_seconds:.3g} s, {resources.tokens:,} tokens: "
        f"about {duration(resources.seconds)} on this machine, from one timed step; evaluation and checkpoints apart",
    ]


def arms_json(arms: "list[Arm]", resources: "Resources") -> dict[str, Any]:
    return {
        "arms": [
            {
                "init": {"law": arm.plan.law, **arm.plan.options},
                "plan": arm.plan.dump()["rows"],
                "residual": asdict(arm.residual),
                "first_loss": arm.loss,
                "logits": asdict(arm.logits),
            }
            for arm in arms
        ],
        "resources": {**asdict(resources), "seconds": resources.seconds},
    }


def _counts(config: "Config", as_json: bool) -> None:
    from seedbed.analysis.preflight import non_embedding, parameter_counts

    if config.model.vocab_size is None:
        if config.data.store is None:
            raise InputError("model.vocab_size is not set and there is no data.store to take it from; set one of them")
        from seedbed.train.setup import resolve

        config, _ = resolve(config)
    counts = parameter_counts(config.model)
    total, inner = sum(count.parameters for count in counts), non_embedding(counts)
    if as_json:
        print_json({"parameters": total, "non_embedding": inner, "roles": [asdict(count) for count in counts]})
        return
    rows = [[count.role, f"{count.tensors:,}", f"{count.parameters:,}"] for count in counts]
    rows += [
        ["total", f"{sum(c.tensors for c in counts):,}", f"{total:,}"],
        ["without embeddings and head", "", f"{inner:,}"],
    ]
    console().print(table(f"{total / 1e9:.3f}B parameters", ["role", "tensors", "parameters"], rows))

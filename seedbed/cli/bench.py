"""seedbed bench CONFIG"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from seedbed.cli.output import Json, Overrides, console, note, print_json, table
from seedbed.cli.train import load_config
from seedbed.parallel.launched import launched

if TYPE_CHECKING:
    from seedbed.analysis.bench import Bench


def bench(
    path: Annotated[str, typer.Argument(metavar="CONFIG", help="YAML or JSON file.")],
    overrides: Overrides = None,
    steps: Annotated[int, typer.Option(min=1, max=10_000, help="Steps to time.")] = 10,
    as_json: Json = False,
) -> None:
    """Train for a few steps, writing nothing, and show rate, share of the matrix peak, memory, and where time goes.

    Without data.store on random tokens of model.max_seq_len; under torchrun on all its ranks.
    """
    config = load_config(path, overrides or [])
    from seedbed.analysis.bench import bench as measure
    from seedbed.analysis.bench import hints
    from seedbed.parallel.world import open_world

    if launched()[0] == 0 and config.data.store is None:
        note("bench: random tokens; set data.store for the documents and the reading of a run")
    with open_world(config.train.device, config.parallel.timeout_s) as world:
        found = measure(config, steps, world)
        leads = world.leads
    if not leads:
        return
    said = hints(found, config)
    if as_json:
        derived = {
            "tokens_per_s": found.tokens_per_s,
            "flops_a_step": found.flops_a_token * found.tokens,
            "peak_share": found.peak_share,
        }
        print_json({**asdict(found), **derived, "hints": said})
    else:
        _show(found)
        print(*said, sep="\n")


def _show(found: "Bench") -> None:
    times, rate = sorted(found.seconds), found.tokens_per_s
    a_step, here = found.flops_a_token * found.tokens, found.peak_share * found.peak
    ranks = f"{found.ranks} ranks of" if found.ranks > 1 else "one process of"
    a_rank = " a rank" if found.ranks > 1 else ""
    print(
        f"{found.device}, {ranks} {found.threads} threads, {found.precision}: {found.parameters:,} parameters, "
        f"{found.tokens:,} tokens a step\n"
        f"rate      {rate:,.0f} tokens/s, a step {1e3 * found.tokens / rate:,.1f} ms "
        f"({1e3 * times[0]:,.1f} to {1e3 * times[-1]:,.1f} over {len(times)} steps)\n"
        f"products  {found.flops_a_token / 1e6:,.3g} MFLOP a token, {a_step / 1e9:,.4g} GFLOP a step:\n"
        "          6 an entry of the matrices of blocks and head, 6 x layers x width of the query heads x length for "
        "causal attention\n"
        f"share     {found.peak_share:.0%} of the peak: {here / 1e9:,.4g} of {found.peak / 1e9:,.4g} GFLOP/s{a_rank} "
        f"that a large {found.precision.removeprefix('pure_')} product reaches here"
    )
    out = console()
    memory = [[part, f"{size / 2**20:,.1f}"] for part, size in found.memory.items()]
    memory += [["sum of these", f"{sum(found.memory.values()) / 2**20:,.1f}"]]
    memory += [["most at once", f"{found.peak_memory / 2**20:,.1f}"]]
    print(f"\nmemory{a_rank} in one more step, each part when it is largest")
    out.print(table("", ["", "MiB"], memory))
    phases = [[phase, f"{1e3 * s:,.1f}", f"{found.phase_share(phase):.0%}"] for phase, s in found.phases.items()]
    if found.ranks > 1:
        phases.append(["communication, beside these", f"{1e3 * found.communication:,.1f}", ""])
    looked_at = 1e3 * sum(found.phases.values())
    print(f"\ntime by phase, the device waited for between them: the mean of more steps, of {looked_at:,.1f} ms")
    out.print(table("", ["", "ms", "share"], phases))

"""What the cost model predicts for S0's and S1's models on 8 to 512 GPUs: the tables of docs/scaling.md.

    python benchmarks/scaling.py [--figure FILE.png]

Nothing is measured here: benchmarks/scaling_check.py holds the model against two and four ranks on a CPU.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.figure import Figure

from seedbed.analysis.cost import Sizes, sizes
from seedbed.analysis.speed import HARDWARE, Hardware, Prediction, fastest
from seedbed.config import Config
from seedbed.report.style import ARMS, WIDTH, log_scale, panels, style

RECIPES = Path(__file__).parent.parent / "recipes"
GPUS = (8, 16, 64, 128, 512)
LENGTH = 2048
BUSY = 8  # sequences a GPU and step, with which the larger batches of the tables are made


@dataclass(frozen=True)
class Training:
    title: str
    recipe: str
    batch: int  # sequences a step
    tokens: float  # the paper's
    sizes: Sizes

    def batches(self, gpus: int) -> list[int]:
        """The recipe's batch, at least one sequence a GPU; and one that keeps them busy, where that is larger."""
        return sorted({max(self.batch, gpus), max(self.batch, gpus * BUSY)})


def trainings() -> list[Training]:
    """The dense models are as their recipes. Of S0's mixtures we know what they store and multiply; they are taken to
    be as wide and deep as the dense model nearest to what is active, and to have its batch (choice)."""

    def of(title: str, recipe: str, tokens: float) -> Training:
        config = Config.load(str(RECIPES / f"{recipe}.yaml"))
        return Training(title, recipe, config.train.batch_size, tokens, sizes(config, LENGTH))

    def mixture(title: str, recipe: str, stored: int, active: int) -> Training:
        dense = of(title, recipe, 100e9)
        return replace(dense, sizes=replace(dense.sizes, parameters=stored, multiplied=active, moments=2 * stored))

    return [
        of("S0 dense, 24 layers of 2048", "dense-24x2048", 36e9),
        of("S1, 1.2B", "astrai-1.2b", 25e9),
        mixture("S0 mixture, 1.5B stored, 0.25B active", "dense-12x768", 1_500_000_000, 250_000_000),
        mixture("S0 mixture, 3B stored, 0.5B active", "dense-24x1024", 3_000_000_000, 500_000_000),
    ]


def rows(training: Training, hardware: Hardware) -> list[tuple[int, Prediction]]:
    """(sequences a step, prediction) for each number of GPUs and batch."""
    return [
        (batch, fastest(training.sizes, hardware, gpus, batch)) for gpus in GPUS for batch in training.batches(gpus)
    ]


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    rule = ["---"] + ["---:"] * (len(header) - 1)
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, rule, *lines))


def predictions_table(training: Training, hardware: Hardware) -> str:
    """Markdown: a row for each number of GPUs and batch."""
    header = ("GPUs", "batch", "layout", "GB a GPU", "tokens/s", "MFU", "communicating", "waiting", "days")
    lines = []
    for batch, found in rows(training, hardware):
        layout = found.layout
        how = (
            f"{layout.strategy}, {layout.passes} x {layout.rows}"
            + ("" if layout.recompute == "none" else f", {layout.recompute}")
            + (", summed each" if layout.reduce_each_pass else "")
        )
        held, days = sum(found.memory.values()) / 1e9, training.tokens / found.tokens_per_s / 86400
        shares = (found.mfu, found.seconds.communicating, found.seconds.waiting)
        lines.append(
            (f"{layout.gpus}", f"{batch:,}", how, f"{held:.0f}", f"{found.tokens_per_s:,.0f}",
             *(f"{share:.0%}" for share in shares), f"{days:.2f}")
        )  # fmt: skip
    return table(header, lines)


def memory_table(every: list[Training], hardware: Hardware) -> str:
    """Markdown: gigabytes of a GPU by part, on 8 GPUs and on 64, with the recipe's batch."""
    found = [
        (training.title, fastest(training.sizes, hardware, gpus, training.batches(gpus)[0]))
        for training in every
        for gpus in (8, 64)
    ]
    parts = list(found[0][1].memory)
    lines = [
        (f"{title}, {one.layout.gpus} GPUs, {one.layout.strategy}",
         *(f"{one.memory[part] / 1e9:.1f}" for part in parts), f"{sum(one.memory.values()) / 1e9:.0f}")
        for title, one in found
    ]  # fmt: skip
    return table(("", *parts, "sum"), lines)


def hardware_table() -> str:
    header = ("GPU", "bf16 TFLOP/s", "memory GB", "its TB/s", "GB/s in a node", "GB/s between nodes")
    lines = [
        (h.name, f"{h.peak / 1e12:.0f}", f"{h.memory / 1e9:.0f}", f"{h.memory_rate / 1e12:.2f}",
         f"{h.intra / 1e9:.0f}", f"{h.inter / 1e9:.0f}")
        for h in HARDWARE.values()
    ]  # fmt: skip
    return table(header, lines)


def kinds_table(every: list[Training]) -> str:
    """Markdown: days for the papers' budgets on 8 and 64 of each GPU, with the recipe's batch."""
    places = [(gpus, name) for gpus in (8, 64) for name in HARDWARE]

    def days(training: Training, gpus: int, name: str) -> float:
        found = fastest(training.sizes, HARDWARE[name], gpus, training.batches(gpus)[0])
        return training.tokens / found.tokens_per_s / 86400

    lines = [(one.title, *(f"{days(one, *place):.2f}" for place in places)) for one in every]
    return table(("days", *(f"{gpus} {name}" for gpus, name in places)), lines)


def command(training: Training, gpus: int, hardware: Hardware) -> str:
    """The command of a dense model on so many GPUs, with the recipe's batch where they can share it."""
    batch = training.batches(gpus)[0]
    layout = fastest(training.sizes, hardware, gpus, batch).layout
    start = "torchrun --nproc-per-node 8"
    if gpus > 8:
        start += f" --nnodes {gpus // 8} --rdzv-backend c10d --rdzv-endpoint $HEAD:29400 --rdzv-id 1"
    settings = [f"parallel.strategy={layout.strategy}", f"train.micro_batch_size={layout.rows}"]
    settings += [f"parallel.recompute={layout.recompute}"] if layout.recompute != "none" else []
    settings += ["parallel.reduce_each_pass=true"] if layout.reduce_each_pass else []
    if batch != training.batch:
        settings += [f"train.batch_size={batch}", f"train.steps={training.tokens / (batch * LENGTH):.0f}"]
    return f"{start} -m seedbed train recipes/{training.recipe}.yaml data.store=$STORE {' '.join(settings)}"


def tables() -> list[str]:
    """All that docs/scaling.md has from here, in its order."""
    every, hardware = trainings(), HARDWARE["H100"]
    return [
        hardware_table(),
        *(f"{one.title}:\n\n{predictions_table(one, hardware)}" for one in every),
        memory_table(every, hardware),
        kinds_table(every),
        *("\n".join(command(one, gpus, hardware) for gpus in GPUS) for one in every[:2]),
    ]


def scaling_figure() -> Figure:
    """Tokens a second and waiting against GPUs: the recipe's batch solid, one that grows with the GPUs dashed."""
    with style():
        figure, (speed, waiting) = panels(1, 2, WIDTH, 3.6)
        for training, (colour, marker) in zip(trainings(), ARMS, strict=True):
            for which, line in ((0, "-"), (-1, "--")):
                found = [
                    fastest(training.sizes, HARDWARE["H100"], gpus, training.batches(gpus)[which]) for gpus in GPUS
                ]
                look = {"color": colour, "marker": marker, "linestyle": line, "markersize": 4}
                label = training.title if which == 0 else None
                speed.plot(GPUS, [one.tokens_per_s / 1e6 for one in found], label=label, **look)
                waiting.plot(GPUS, [100 * one.seconds.waiting for one in found], **look)
        log_scale(speed, "y")
        for axes in (speed, waiting):
            axes.set_xscale("log", base=2)
            axes.set_xticks(GPUS, [str(gpus) for gpus in GPUS])
            axes.set_xlabel("GPUs (H100)")
        speed.set_title("million tokens a second; dashed: larger batches")
        waiting.set_title("% of a step spent waiting for other ranks")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", type=Path)
    arguments = parser.parse_args()
    print("\n\n".join(tables()))
    if arguments.figure:
        scaling_figure().savefig(arguments.figure, dpi=110)


if __name__ == "__main__":
    main()

"""Joins training, evaluation and reports: fit a configuration, load what was trained."""

import json
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from seedbed.analysis.run import snapshot, write_page, write_snapshot
from seedbed.config import Config
from seedbed.data.store import Store
from seedbed.data.tokenizer import Tokenizer, load_tokenizer
from seedbed.errors import InputError
from seedbed.eval.heldout import evaluate
from seedbed.files.atomic import write_atomic
from seedbed.files.lock import folder_lock
from seedbed.hub.models import LanguageModel, open_model
from seedbed.measure.losses import perplexity
from seedbed.model import Decoder
from seedbed.parallel.launched import restarts
from seedbed.parallel.world import World, open_world
from seedbed.serve.answer import Answer
from seedbed.serve.generate import generate as continue_prompts
from seedbed.serve.options import Options
from seedbed.serve.prompts import text_ids
from seedbed.train.loop import Job, train
from seedbed.train.metrics import Tracker, read_metrics, tensorboard
from seedbed.train.run import clear, folder_conflict, read_config, write_config
from seedbed.train.setup import checkpoint_of, go_back, initial_model, load_weights, resolve, start, where_it_stands

SEEN_S = 60.0
"""After so many seconds a network file system shows to all what one has written (NFS: acdirmax)."""
SAMPLE_BUDGET = 2e11
"""Parameters times tokens of a sample: a minute or two of one core (choice); 64 tokens in any case."""


@dataclass(frozen=True)
class Summary:
    """How a run ended."""

    run: str
    steps: int
    tokens: int
    seconds: float
    train_loss: float
    nats_per_token: float | None  # None where the run never evaluates
    bits_per_byte: float | None
    report: str

    def __str__(self) -> str:
        heldout = (
            "not evaluated"
            if self.nats_per_token is None
            else f"{self.nats_per_token:.4f} nats per token (perplexity {perplexity(self.nats_per_token):.1f}), "
            f"{self.bits_per_byte:.4f} bits per byte"
        )
        return (
            f"run       {self.run}: {self.steps:,} steps, {self.tokens:,} tokens, {self.seconds:,.0f} s in steps\n"
            f"held out  {heldout}\n"
            f"report    {self.report}"
        )


class Run:
    """A run's folder, opened for reading."""

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self.config = read_config(path)

    @cached_property
    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.path)

    @property
    def summary(self) -> Summary:
        trained = [row for row in self.metrics if row["kind"] == "train"]
        evaluated = [row for row in self.metrics if row["kind"] == "eval"]
        if not trained:
            raise InputError(f"{self.path}: metrics.jsonl has no training step; train it first, or put the file back")
        last, heldout = trained[-1], evaluated[-1] if evaluated else {}
        skipped = [row["step"] for row in self.metrics if row["kind"] == "guard" and row["action"] == "skip"]
        return Summary(
            run=str(self.path),
            steps=max([last["step"], *skipped]),
            tokens=last["tokens"],
            seconds=last["seconds"],
            train_loss=last["loss"],
            nats_per_token=heldout.get("nats_per_token"),
            bits_per_byte=heldout.get("bits_per_byte"),
            report=str(self.path / "report.html"),
        )


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def fit(
    config: Config,
    tell: Callable[[str], None] = _tell,
    *,
    fresh: bool = False,
    page: bool = True,
    trackers: Sequence[Tracker] = (),
) -> Run:
    """Train ``config`` to its last step, from where its run folder stands, and write the run's report if ``page``.

    ``fresh`` removes a run that is there and starts over, except where torchrun or Slurm repeats the command by itself:
    then the run goes on. ``tell`` receives lines for people. Each of ``trackers`` is called on the leading rank with a
    row of the metrics once that is written; what one raises ends the run before its next update, and the last
    checkpoint stands. Raises InputError on a configuration, store or folder that does not fit, GuardStop on a loss that
    is not finite, SignalStop after saving when SIGINT or SIGTERM arrives, LostRank when another rank has died or hangs,
    and what a tracker raised.
    """
    if config.run.dir is None:
        raise InputError("run.dir is not set; set run.dir=FOLDER, where the run will be kept")
    run_dir = Path(config.run.dir)
    with open_world(config.train.device, config.parallel.timeout_s) as world:
        config, store = world.together(lambda: resolve(config))
        world.require_same(configuration=config.dump(), store=store.split("train").fingerprint)
        says = tell if world.leads else lambda _: None
        if fresh and (world.starts or world.max(restarts())):
            says("--fresh: torchrun or Slurm has started this again by itself; the run goes on and nothing is removed")
            fresh = False
        _train(config, run_dir, store, world, says, fresh, trackers)
        if world.leads and page:  # the others need not wait
            tell(f"writing {run_dir / 'report.html'}")
            trained = load(run_dir)
            write_page(run_dir, trained.model, config, store, trained.sample())
    return Run(run_dir)


def _train(
    config: Config,
    run_dir: Path,
    store: Store,
    world: World,
    tell: Callable[[str], None],
    fresh: bool,
    trackers: Sequence[Tracker],
) -> None:
    """The run from where its folder stands to its last step."""
    world.by_lead(lambda: folder_conflict(run_dir, config, fresh))  # before anything is written there
    with ExitStack() as stack:
        world.together(lambda: stack.enter_context(folder_lock(run_dir)) if world.leads else None)
        holder = world.by_lead((run_dir / ".lock").read_text)
        world.together(lambda: _require_shared(run_dir, holder))
        world.by_lead(lambda: folder_conflict(run_dir, config, fresh))
        newest, notes = (None, []) if fresh else world.by_lead(lambda: where_it_stands(run_dir))
        job = start(config, run_dir, store, newest, world)
        world.by_lead(lambda: _begin(job, store, notes, tell, fresh))
        tracked = config.train.tensorboard and world.leads
        own = world.together(lambda: [stack.enter_context(tensorboard(run_dir, job.step))] if tracked else [])
        train(job, heldout_evaluation(job, store), lambda: go_back(job), [*own, *trackers])


def _require_shared(run_dir: Path, holder: str) -> None:
    """Raise InputError where this rank does not see the lock that the leading rank, process ``holder``, has there, not
    even after SEEN_S.
    """
    lock, until = run_dir / ".lock", time.monotonic() + SEEN_S
    while not (seen := lock.is_file() and lock.read_text() == holder) and time.monotonic() < until:
        time.sleep(0.1)
    if not seen:
        raise InputError(
            f"run.dir={run_dir}: {socket.gethostname()} does not see there what the leading rank writes; name a folder "
            "that all ranks share"
        )


def _begin(job: Job, store: Store, notes: list[str], tell: Callable[[str], None], fresh: bool) -> None:
    """Write what a run has from its start on, and say where it stands."""
    config, run_dir = job.config, job.run_dir
    if fresh:
        clear(run_dir)
    before = read_config(run_dir) if job.step else None
    write_config(run_dir, config)
    for line in notes:
        tell(line)
    if job.step == 0:
        tell(str(job.optimizers))
        if config.train.init_from is not None:
            tell(f"weights from {job.receipt['init_from']}; the init section is not used")
        write_atomic(run_dir / "receipt.json", json.dumps(job.receipt, indent=1))
        model = job.model if job.world.size == 1 else initial_model(config)[0]  # what is sharded cannot be measured
        write_snapshot(run_dir, snapshot(model, store))
    elif job.step < config.train.steps:
        if before and before.train.steps != config.train.steps:
            steps = config.train.steps
            tell(f"train.steps was {before.train.steps}: from here on the schedule is that of {steps} steps")
        tell(f"resuming {run_dir} after step {job.step} of {config.train.steps}")
    else:
        tell(f"{run_dir} has made all its {job.step} steps")


def heldout_evaluation(job: Job, store: Store) -> Callable[[], dict[str, Any]]:
    """What the loop calls to measure the job's model on the held-out split."""
    token_bytes = torch.from_numpy(store.tokenizer().token_bytes().astype("int64"))
    config = job.config.train
    assert config.micro_batch_size
    micro_batch = config.micro_batch_size
    return lambda: evaluate(
        job.model, store.split("heldout"), token_bytes, config.eval_sequences, micro_batch, config.precision, job.world
    )


@dataclass(frozen=True)
class Trained:
    """A trained model with its tokenizer and configuration."""

    model: Decoder = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    config: Config

    def sample(self) -> str:
        """The start of a document as the model imagines one; the same text each time. Of a large model a shorter one,
        since all ranks wait for it.
        """
        affordable = int(SAMPLE_BUDGET / sum(parameter.numel() for parameter in self.model.parameters()))
        model = LanguageModel("model", self.model, self.tokenizer, self.config.model.max_seq_len)
        return generate(model, [""], max_new_tokens=min(model.max_length, max(64, affordable)))[0].text


def generate(
    model: LanguageModel | str | Path, prompts: Sequence[str], *, seed: int = 0, **options: Any
) -> list[Answer]:
    """Continue texts with a model: an opened one, or a path as for ``hub.models.open_model``.

    Prompt number i draws by seed + i; ``options`` are the fields of ``serve.options.Options``. An empty prompt starts a
    document. Each answer has ``text``, ``ids`` and ``finish``, why it ended. Raises InputError on an option out of
    range and on a prompt that leaves no room in what the model can read.
    """
    opened = model if isinstance(model, LanguageModel) else open_model(model)
    ids = [text_ids(opened.tokenizer, prompt) for prompt in prompts]
    return continue_prompts(opened, ids, Options(**options), range(seed, seed + len(ids)))


def load(path: str | Path) -> Trained:
    """Load a run (its newest whole checkpoint) or a checkpoint, on the CPU. Raises InputError when there is none."""
    folder = checkpoint_of(path)
    config = read_config(folder)
    model = Decoder(config.model)
    load_weights(model, folder)
    return Trained(model.eval(), load_tokenizer(folder / "tokenizer"), config)

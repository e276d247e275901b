"""From a configuration to a job that can be trained: drawn anew, or as the newest whole checkpoint left it."""

import warnings
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from seedbed.config import Config, ModelConfig
from seedbed.data.loader import Loader
from seedbed.data.store import Store
from seedbed.errors import GuardStop, InputError
from seedbed.facts.table import parameter_facts, parts_of
from seedbed.files.atomic import COMMIT, clear_leftovers, sha256
from seedbed.files.safetensors import WEIGHTS, Tensors, part_files, weight_files
from seedbed.init import apply_plan, make_plan
from seedbed.init.materialize import materialize_
from seedbed.init.report import FORMAT_VERSION, ReceiptRow
from seedbed.model import Decoder
from seedbed.optim.groups import build_optimizers
from seedbed.optim.schedule import validate
from seedbed.parallel.world import World, pick_device
from seedbed.parallel.wrap import compiles, recompute, replicate, shard
from seedbed.train.checkpoint import (
    Checkpoint,
    check_whole,
    load_into,
    newest_checkpoint,
    read_checkpoint,
    restore_rng,
)
from seedbed.train.guard import Guard
from seedbed.train.loop import Job
from seedbed.train.run import CONFIG, read_config

DTYPES = {"fp32": torch.float32, "bf16": torch.float32, "pure_bf16": torch.bfloat16, "fp64": torch.float64}
"""Of weights and optimizer state, for each train.precision."""


def resolve(config: Config) -> tuple[Config, Store]:
    """Open the store and fill in what it decides; check that model, data and schedule fit.

    The vocabulary size is that of its tokenizer, padded as the tokenizer says. Raises InputError naming the fields.
    """
    if config.data.store is None:
        raise InputError("data.store is not set; make one with `seedbed data prepare` and set data.store=FOLDER")
    store = Store(config.data.store)
    tokens, padded = store.header["vocab_size"], store.header["padded_vocab_size"]
    vocab = config.model.vocab_size
    if vocab is None:
        config = config.model_copy(update={"model": config.model.model_copy(update={"vocab_size": padded})})
    elif vocab < tokens:
        raise InputError(
            f"model.vocab_size={vocab} is smaller than the vocabulary of {config.data.store}, {tokens}; "
            "raise it, or leave it out to take the store's"
        )
    elif vocab > tokens and vocab != padded:
        warnings.warn(
            f"model.vocab_size={vocab}: the last {vocab - tokens} ids never occur in {store.path}", stacklevel=2
        )
    seq_len: int = store.header["seq_len"]
    if seq_len > config.model.max_seq_len:
        raise InputError(
            f"model.max_seq_len={config.model.max_seq_len} is shorter than the bins of {config.data.store}, "
            f"{seq_len} tokens; raise it, or prepare the store with --seq-len {config.model.max_seq_len}"
        )
    short = seq_len < config.model.max_seq_len and store.header["position_ids"] != "continuous"
    if short and config.train.init_from is None:
        warnings.warn(
            f"model.max_seq_len={config.model.max_seq_len}: bins of {store.path} have {seq_len} tokens; positions "
            "behind them are not trained, and evaluation and generation read them all the same",
            stacklevel=2,
        )
    if store.header["position_ids"] == "continuous" and config.model.position == "learned":
        raise InputError(
            f"model.position=learned: the positions of {config.data.store} count on from bin to bin (continuous), past "
            "any table; set model.position=rope, or prepare the store with packing.position_ids doc_reset"
        )
    if len(store.split("heldout")) == 0 and config.train.eval_every != -1:
        raise InputError(
            f"data.store={config.data.store} holds nothing out; prepare it with --heldout above 0, "
            "or set train.eval_every=-1 to train without evaluating"
        )
    pick_device(config.train.device)
    validate(config.train.steps, config.optim.schedule)
    return config, store


def build_model(config: Config, world: World) -> Decoder:
    """This rank's part of the model, in memory on its device: NaN until weights are drawn or loaded.

    It is split before it has memory, so that none ever needs room for all of it.
    """
    with torch.device("meta"):
        model = Decoder(config.model).to(DTYPES[config.train.precision])
    recompute(model.layers, config.parallel.recompute)
    shard(model, model.layers, config.parallel, config.train.precision, world)
    offloaded = config.parallel.offload and world.mesh is not None  # alone nothing brings weights to the device
    materialize_(model, "cpu" if offloaded else world.device)
    return model


def initialize(config: Config, model: Decoder) -> dict[str, Any]:
    """Give ``model`` the weights it has before its first step; returns the receipt of how they came about."""
    if config.train.init_from is not None:
        path = checkpoint_of(config.train.init_from)
        load_weights(model, path)
        _check_multipliers(config.model, read_config(path).model, path)
        return loaded_receipt(model, path)
    plan = make_plan(parameter_facts(model), config.init)
    return apply_plan(model, plan, config.run.seed).dump()


def initial_model(config: Config) -> tuple[Decoder, dict[str, Any]]:
    """The whole model of ``config`` before its first step, on the CPU, and the receipt."""
    model = build_model(config, World(torch.device("cpu")))
    return model, initialize(config, model)


def _check_tokenizer(store: Store, config: Config, newest: Path | None) -> None:
    """Weights know the ids of the tokenizer that they were trained with; the store's must be the same."""
    trained = newest or (None if config.train.init_from is None else checkpoint_of(config.train.init_from))
    if trained is not None:
        store.check_tokenizer(sha256(trained / "tokenizer" / "tokenizer.json"))


def _check_multipliers(model: ModelConfig, trained: ModelConfig, path: Path) -> None:
    """Weights fit a model with other multipliers, µP's for example, but what they compute would be something else."""
    if model.output_multiplier != trained.output_multiplier or model.attention.scale != trained.attention.scale:
        raise InputError(
            f"train.init_from={path}: was trained with model.output_multiplier={trained.output_multiplier} and "
            f"model.attention.scale={trained.attention.scale}, here they are {model.output_multiplier} and "
            f"{model.attention.scale}; set them, or init.law=mup with its base_width, as there"
        )


def loaded_receipt(model: Decoder, path: Path) -> dict[str, Any]:
    """A receipt of weights that were loaded instead of drawn: where from, and what they measure."""
    rows = []
    for part, values in parts_of(parameter_facts(model), Tensors(weight_files(path))):
        values = values.to(torch.promote_types(values.dtype, torch.float32))
        std, mean = values.std(correction=0).item(), values.mean().item()
        rows.append(ReceiptRow(part.name, part.role, part.shape, "loaded", 0.0, std, mean))
    return {"format_version": FORMAT_VERSION, "init_from": str(path), "rows": [asdict(row) for row in rows]}


def load_weights(model: nn.Module, folder: Path) -> None:
    """Load the weights of the checkpoint in ``folder``, found whole before; a sharded model takes its part.

    Raises InputError naming the tensors that are missing, unknown or of another shape; the model is then untouched.
    """
    load_into(model.state_dict(), weight_files(folder), "the model section must be that of the checkpoint")


def checkpoint_of(path: str | Path) -> Path:
    """The whole checkpoint's folder that ``path``, a run or a checkpoint, stands for; warns of newer, damaged ones.

    Raises InputError when there is none.
    """
    path = Path(path)
    if (path / "config.json").is_file() and not (path / CONFIG).is_file():
        raise InputError(f"{path}: is a Hugging Face checkpoint; make a run of it with `seedbed import {path} -o RUN`")
    if any((path / name).exists() for name in (COMMIT, WEIGHTS, "state.json")):  # a checkpoint, whole or not
        check_whole(path)
        return path
    read_config(path)  # says so where it is no run at all
    newest, notes = newest_checkpoint(path)
    if newest is None:
        raise InputError("; ".join(notes) or f"{path}: has no checkpoint yet; train it first")
    for line in notes:
        warnings.warn(line, stacklevel=2)
    return newest


def where_it_stands(run_dir: Path) -> tuple[Path | None, list[str]]:
    """The checkpoint that a run goes on from, None for one that has none yet, and what a person should know about that.

    What saves and removals that were killed left is removed or brought back; the caller holds the run. Raises
    InputError where all its checkpoints are damaged: starting over is for the user to say.
    """
    clear_leftovers(run_dir / "checkpoints")
    newest, notes = newest_checkpoint(run_dir)
    if newest is None and notes:
        raise InputError(f"{'; '.join(notes)}; put one back, or start over with --fresh")
    return newest, notes


def start(config: Config, run_dir: Path, store: Store, newest: Path | None = None, world: World | None = None) -> Job:
    """The job of a run on this rank of ``world``, from its checkpoint ``newest`` on or from the beginning; together."""
    world = World(pick_device(config.train.device)) if world is None else world
    job = world.together(partial(_own_job, config, run_dir, store, newest, world))
    job.forward = replicate(job.model, world, compiles(config, world), job.model.layers)
    return job


def _own_job(config: Config, run_dir: Path, store: Store, newest: Path | None, world: World) -> Job:
    """What a rank makes of its job without talking with another."""
    checkpoint = read_checkpoint(newest) if newest is not None else None
    _check_tokenizer(store, config, newest)
    model = build_model(config, world)
    if checkpoint is None:
        receipt = initialize(config, model)
    else:
        receipt = checkpoint.receipt
        load_weights(model, checkpoint.path)
    job = Job(
        config=config,
        run_dir=run_dir,
        model=model,
        forward=model,
        optimizers=build_optimizers(model, parameter_facts(model), config.optim, world.group),
        loader=Loader(
            store.split("train"),
            config.train.batch_size,
            config.run.seed,
            rank=world.rank,
            world_size=world.size,
            prefetch=config.data.prefetch,
            pin=world.device.type == "cuda",
        ),
        world=world,
        receipt=receipt,
        tokenizer_dir=store.path / "tokenizer",
    )
    if checkpoint is not None:
        _restore(job, checkpoint)
    return job


def _restore(job: Job, checkpoint: Checkpoint) -> None:
    _restore_state(job, checkpoint)
    job.loader.restore(checkpoint.loader)
    job.seconds = checkpoint.seconds
    if job.step > job.config.train.steps:
        raise InputError(
            f"train.steps={job.config.train.steps}: the run has made {job.step} steps already; ask for as many or "
            "more, or start over with --fresh"
        )


def _restore_state(job: Job, checkpoint: Checkpoint) -> None:
    advice = "resume with the model and optimizer that wrote it, or start anew from its weights (train.init_from)"
    load_into(job.optimizers.state_dict(), part_files(checkpoint.path, "optimizer"), advice)
    restore_rng(checkpoint.rng)
    job.step, job.tokens, job.guard = checkpoint.step, checkpoint.tokens, Guard(**checkpoint.guard)


def go_back(job: Job) -> int:
    """Put ``job`` where its newest whole checkpoint has it, but for the data, which goes on behind what was read, and
    the number of rollbacks; returns the position in the data of that checkpoint. All ranks do so together.

    Raises GuardStop where there is none.
    """
    path, _ = job.world.by_lead(lambda: newest_checkpoint(job.run_dir))
    if path is None:
        raise GuardStop(f"{job.run_dir}: no whole checkpoint to go back to; lower optim.lr or train.checkpoint_every")
    checkpoint, rollbacks = read_checkpoint(path), job.guard.rollbacks
    load_weights(job.model, path)
    _restore_state(job, checkpoint)
    job.guard.rollbacks = rollbacks
    return checkpoint.loader["position"]

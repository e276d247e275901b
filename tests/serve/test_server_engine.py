"""The engine against the model's own generation, token for token."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from random import Random

import pytest
import torch
from foreign import build

pytest.importorskip("transformers")
pytest.importorskip("prometheus_client")

from serving import make_engine

from seedbed.errors import InputError
from seedbed.hub.transformers_model import to_transformers
from seedbed.serve.generate import generate
from seedbed.serve.options import Options
from seedbed.serve.server_draws import Chooser, Draws
from seedbed.serve.server_engine import PAGE, Engine, EngineStopped

GREEDY = Options(max_new_tokens=12, temperature=0.0)


def prompts(model, count: int, longest: int = 30) -> list[list[int]]:
    """Of different lengths."""
    rng, known = Random(0), model.tokenizer.known().nonzero()[0].tolist()
    return [[rng.choice(known) for _ in range(rng.randint(1, longest))] for _ in range(count)]


def written(engine: Engine, jobs, ends=(), times: int = 1):
    """Ids that the engine writes for (prompt, options, seed), all together; of the last of several times."""

    async def once():
        changed = asyncio.Event()
        rows = [engine.submit(prompt, options, seed, ends, changed) for prompt, options, seed in jobs]
        while not all(row.finished for row in rows):
            await asyncio.wait_for(changed.wait(), 60)
            changed.clear()
        return [row.ids if row.error is None else row.error for row in rows]

    async def together():
        engine.start()
        try:
            for _ in range(times - 1):
                await once()
            return await once()
        finally:
            engine.stop()

    return asyncio.run(together())


@pytest.mark.parametrize("cache_tokens", [1024, 64], ids=["roomy", "full"])
def test_greedy_is_generate_token_for_token(tiny_model, cache_tokens):
    """Sixteen prompts of different lengths over eight rows; the small cache holds not much more than one of them."""
    asked = prompts(tiny_model, 16)
    expected = [answer.ids for answer in generate(tiny_model, asked, GREEDY, ends=())]
    engine = make_engine(tiny_model, cache_tokens)
    assert engine.capacity == cache_tokens
    assert written(engine, [(prompt, GREEDY, 0) for prompt in asked]) == expected
    assert len({tuple(ids) for ids in expected}) > 8, "the model says the same to all"


def test_prompts_that_begin_alike(make_model):
    """Blocks of the cache that several prompts share, while they are written and from a round before."""
    model = make_model("model.max_seq_len=128")
    model = replace(model, max_length=128)
    start = [token for prompt in prompts(model, 16) for token in prompt][: 2 * PAGE + 6]
    assert len(start) > 2 * PAGE
    asked = [start + end for end in ([5], [6, 7], [5, 8, 9], [])] * 2
    expected = [answer.ids for answer in generate(model, asked, GREEDY, ends=())]
    engine = make_engine(model, cache_tokens=512, batch_tokens=48)
    assert written(engine, [(prompt, GREEDY, 0) for prompt in asked], times=2) == expected


def test_draws_are_those_of_generate(tiny_model):
    """Rows of different options and seeds beside each other."""
    asked = prompts(tiny_model, 6)
    options = [
        Options(max_new_tokens=12, temperature=0.9),
        Options(max_new_tokens=12, temperature=0.7, top_k=5),
        Options(max_new_tokens=9, temperature=1.3, top_p=0.8),
        Options(max_new_tokens=12, temperature=1.0, min_p=0.1),
        Options(max_new_tokens=12, temperature=0.0, repetition_penalty=1.5),
        GREEDY,
    ]
    jobs = [(prompt, option, 7 + seed) for seed, (prompt, option) in enumerate(zip(asked, options, strict=True))]
    expected = [generate(tiny_model, [p], option, [seed], ends=())[0].ids for p, option, seed in jobs]
    assert written(make_engine(tiny_model), jobs) == expected
    assert written(make_engine(tiny_model, cache_tokens=64), jobs) == expected, "a full cache changes draws"


def test_an_end_token_ends_it(tiny_model):
    prompt = prompts(tiny_model, 1)[0]
    free = generate(tiny_model, [prompt], GREEDY, ends=())[0].ids
    end = free[4]
    assert written(make_engine(tiny_model), [(prompt, GREEDY, 0)], ends=[end]) == [free[: free.index(end) + 1]]


def test_one_request_may_fill_the_cache(tiny_model):
    prompt = [*prompts(tiny_model, 1, 1)[0]] * 20
    option = Options(max_new_tokens=PAGE - 20, temperature=0.0)
    engine = make_engine(tiny_model, cache_tokens=PAGE)
    ids = written(engine, [(prompt, option, 0)] * 3)
    assert ids == [generate(tiny_model, [prompt], option, ends=())[0].ids] * 3


def test_ids_of_no_token_are_never_chosen():
    known = torch.tensor([True, False, True])
    chooser = Chooser(known)
    scores = torch.tensor([[0.0, 9.0, 1.0, 99.0]])  # the last is padding of the vocabulary

    class State:
        logit_processor_kwargs = {"draws": Draws(GREEDY, 0)}  # noqa: RUF012

    chooser._states = [State()]  # pyright: ignore
    assert chooser(scores, torch.zeros(1)).argmax() == 2


def test_scores_that_are_not_finite_fail_their_request_alone(tiny_model, monkeypatch):
    asked, call = prompts(tiny_model, 2), Chooser.__call__

    def broken(self, scores, arg):
        for row, state in enumerate(self._states):
            if state.initial_tokens == asked[0]:
                scores[row, 3] = torch.nan
        return call(self, scores, arg)

    engine = make_engine(tiny_model)
    monkeypatch.setattr(Chooser, "__call__", broken)
    found = written(engine, [(prompt, GREEDY, 0) for prompt in asked])
    assert found[0] == "the model gave scores that are not finite"
    assert found[1] == generate(tiny_model, asked[1:], GREEDY, ends=())[0].ids


def in_loop(engine: Engine, work: Callable[[asyncio.Event], Coroutine]) -> None:
    """Do ``work`` while the engine runs."""

    async def run():
        engine.start()
        try:
            async with asyncio.timeout(30):
                await work(asyncio.Event())
        finally:
            engine.stop()

    asyncio.run(run())


def test_a_failing_engine_fails_all_and_takes_no_more(tiny_model, monkeypatch):
    engine = make_engine(tiny_model)

    def failing(self, scores, arg):
        raise RuntimeError("out of memory\nand more")

    async def work(changed):
        rows = [engine.submit(prompt, GREEDY, 0, (), changed) for prompt in prompts(tiny_model, 3)]
        while not all(row.finished for row in rows) or engine.failed is None:
            await asyncio.sleep(0.01)
        with pytest.raises(EngineStopped, match="the engine failed: out of memory$"):
            engine.submit([1], GREEDY, 0, (), changed)
        assert all("out of memory" in str(row.error) for row in rows)

    monkeypatch.setattr(Chooser, "__call__", failing)
    in_loop(engine, work)
    assert engine.written == 0


def test_cancelling_gives_the_cache_back(tiny_model):
    engine = make_engine(tiny_model)

    async def work(changed):
        long = Options(max_new_tokens=40, temperature=0.0)
        rows = [engine.submit(prompt, long, 0, (), changed) for prompt in prompts(tiny_model, 8, 3)]
        await changed.wait()
        for row in rows:
            engine.cancel(row)
            engine.cancel(row)  # changes nothing
        assert engine.written == 0
        scheduler = engine._manager.batch_processor.scheduler  # pyright: ignore
        while scheduler.active_requests or scheduler.waiting_requests:
            await asyncio.sleep(0.01)
        later = engine.submit([1, 2, 3], GREEDY, 0, (), changed)
        while not later.finished:
            await asyncio.sleep(0.01)
        assert later.ids and engine.used() < 0.2

    in_loop(engine, work)


@pytest.mark.parametrize("family", ["bloom", "mamba"])
def test_a_class_that_it_cannot_run_is_told_at_once(family, capfd):
    with pytest.raises(InputError, match="Transformers' continuous batching cannot run it") as caught:
        Engine(build(family), torch.ones(320, dtype=torch.bool), 64, 64, 32, 4)
    assert "\n" not in str(caught.value) and "Traceback" not in capfd.readouterr().err


def test_a_class_that_writes_other_tokens_is_told_at_once(tiny_model, monkeypatch):
    module = to_transformers(tiny_model.module)
    kind = type(module)
    forward = kind.forward

    def forgetful(self, *args, past_key_values=None, cache=None, attention_mask=None, **kwargs):
        """One that takes the engine's cache and mask, and uses neither."""
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(kind, "forward", forgetful)
    known = torch.from_numpy(tiny_model.tokenizer.known())
    with pytest.raises(InputError, match="gives other tokens than the model"):
        Engine(module, known, tiny_model.max_length, 64, 32, 4)


def test_a_cache_larger_than_memory(tiny_model):
    with pytest.raises(InputError, match="--cache-tokens 1000000000000: "):
        make_engine(tiny_model, cache_tokens=10**12)

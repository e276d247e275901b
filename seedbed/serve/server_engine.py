"""Transformers' continuous batching for a server: requests from an asyncio loop, tokens back to it.

The engine's thread runs the model. A second thread takes its results to the loop, where everything else happens.
"""

import asyncio
import logging
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from itertools import count
from math import ceil
from typing import TYPE_CHECKING

from torch import Tensor
from transformers import ContinuousBatchingConfig, GenerationConfig, LogitsProcessorList
from transformers.generation.continuous_batching import ContinuousBatchingManager
from transformers.generation.continuous_batching.cb_logits_processors import ContinuousBatchingLogitsProcessorList
from transformers.generation.continuous_batching.requests import GenerationOutput

from seedbed.errors import InputError
from seedbed.hub.foreign_words import one_line, quiet
from seedbed.serve.options import Options
from seedbed.serve.server_check import check_engine, greedy_scores, probes
from seedbed.serve.server_draws import Chooser, Draws

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PAGE = 32
"""Tokens of a cache block."""
_LOG = logging.getLogger("ContinuousBatchingLogger")


class EngineStopped(Exception):
    """The engine takes no requests: it failed, or is being stopped."""


@dataclass(eq=False)
class Row:
    """One continuation of one prompt while the engine writes it."""

    name: str
    draws: Draws
    changed: asyncio.Event
    """Set whenever there is more to see."""
    ids: list[int] = field(default_factory=list)
    finished: bool = False
    error: str | None = None


class Engine:
    """A model under continuous batching, with a paged cache of ``cache_tokens`` (rounded up to whole blocks).

    ``known`` [V] (bool) are the ids that may be chosen, ``longest`` the tokens that the model reads at most. A step
    reads up to ``batch_tokens`` tokens of up to ``rows`` requests. ``failed`` says why it can take no more requests,
    None while it can.

    Raises InputError where the model cannot be run so, or writes other tokens then, or the cache is larger than the
    memory.
    """

    def __init__(
        self,
        module: "PreTrainedModel",
        known: Tensor,
        longest: int,
        cache_tokens: int,
        batch_tokens: int,
        rows: int,
    ):
        self.failed: str | None = None
        self._open: dict[str, Row] = {}
        self._names = map(str, count())
        self._stopping = threading.Event()
        self._pump: threading.Thread | None = None
        self.capacity = ceil(cache_tokens / PAGE) * PAGE
        """Tokens of prompt and answer that one request may have at most; all requests share them."""
        known = known.to(module.device)
        prompts = probes(known, min(longest, self.capacity))
        scores = greedy_scores(module, known, prompts)
        self._manager = _manager(module, known, cache_tokens, batch_tokens, rows)
        _LOG.setLevel(logging.CRITICAL)  # what fails here is told in one line
        self._manager.start()
        try:
            check_engine(self._manager, prompts, scores)
            _LOG.setLevel(logging.ERROR)
        except BaseException:
            self._manager.stop(hard_stop=True)
            raise
        processor = self._manager.batch_processor
        assert processor is not None  # made by the manager's warm-up
        self._cache = processor.cache
        self.cache_bytes = self._cache.cache_tensor.nbytes
        masks: dict[str, Tensor] = getattr(processor.inputs_and_outputs, "attention_mask", None) or {}
        self.mask_bytes = sum(mask.nbytes for mask in masks.values())

    def start(self) -> None:
        """Called in the running loop that `submit` and `cancel` will be called in."""
        loop = asyncio.get_running_loop()
        self._pump = threading.Thread(target=self._carry, args=(loop,), name="tokens")
        self._pump.start()

    def stop(self) -> None:
        """Fails what is being written. Waits for the step that runs."""
        self.fail("the server is shutting down")
        self._stopping.set()
        self._manager.stop(block=True, hard_stop=True)
        if self._pump is not None:
            self._pump.join()

    def submit(self, ids: list[int], options: Options, seed: int, ends: Collection[int], changed: asyncio.Event) -> Row:
        """Begin to continue ``ids``. Raises EngineStopped."""
        if self.failed is not None:
            raise EngineStopped(self.failed)
        row = Row(next(self._names), Draws(options, seed), changed)
        self._open[row.name] = row
        taken = self._manager.add_request(
            ids, row.name, options.max_new_tokens, streaming=True, eos_token_id=list(ends), draws=row.draws
        )
        if taken is None:
            self.fail("the engine has stopped")
            raise EngineStopped(self.failed)
        return row

    def cancel(self, row: Row) -> None:
        """Stop writing, if it is still being written, and give its part of the cache back."""
        if self._open.pop(row.name, None) is not None and not row.finished:
            row.finished = True
            self._manager.cancel_request(row.name)

    def fail(self, reason: str) -> None:
        """Take no more requests, and end those that are being written with an error."""
        self.failed = self.failed or reason
        for row in [*self._open.values()]:
            row.error = reason
            self.cancel(row)
            row.changed.set()

    @property
    def written(self) -> int:
        """Requests that are being written or wait for it."""
        return len(self._open)

    def used(self) -> float:
        """Share of the cache that requests hold, or that is kept because later prompts may begin alike."""
        return 1.0 - self._cache.compute_free_capacity()

    def _carry(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take results to the loop, those that are there at once together, until the engine has ended."""
        while not self._stopping.is_set():
            outputs = []
            while (output := self._manager.get_result(timeout=0 if outputs else 0.1)) is not None:
                outputs.append(output)
            if outputs:
                loop.call_soon_threadsafe(self._deliver, outputs)
            elif not self._manager.is_running():
                error = self._manager.background_thread_status.fatal_error
                reason = "the engine has stopped" if error is None else f"the engine failed: {one_line(error)}"
                loop.call_soon_threadsafe(self.fail, reason)
                return

    def _deliver(self, outputs: Iterable[GenerationOutput]) -> None:
        for output in outputs:
            row = self._open.get(output.request_id)
            if row is None:  # cancelled meanwhile
                continue
            row.ids = output.generated_tokens
            row.error = output.error or ("the model gave scores that are not finite" if row.draws.broken else None)
            if row.error is not None and not output.is_finished():
                self.cancel(row)
            if row.error is not None or output.is_finished():
                row.finished = True
                self._open.pop(row.name, None)
            row.changed.set()


def _manager(
    module: "PreTrainedModel", known: Tensor, cache_tokens: int, batch_tokens: int, rows: int
) -> ContinuousBatchingManager:
    # each step hands over to Python, which draws; so nothing is captured and nothing overlaps
    config = ContinuousBatchingConfig(
        page_size=PAGE,
        num_blocks=ceil(cache_tokens / PAGE),
        max_batch_tokens=batch_tokens,
        max_requests_per_batch=rows,
        use_cuda_graph=False,
        use_async_batching=False,
        auto_switch_to_flash=False,
    )
    try:
        with quiet():
            manager = module.init_continuous_batching(  # pyright: ignore[reportCallIssue]
                GenerationConfig(do_sample=False, eos_token_id=-1), continuous_batching_config=config
            )
            choosers = ContinuousBatchingLogitsProcessorList(LogitsProcessorList([Chooser(known)]))  # pyright: ignore
            choosers.tensors_required = 1
            manager.logit_processor = choosers
            manager.warmup()
    except MemoryError:
        raise InputError(f"--cache-tokens {cache_tokens}: more than 60 % of the free memory; choose fewer") from None
    except (ValueError, AttributeError, KeyError) as error:
        raise InputError(
            f"{type(module).__name__}: Transformers' continuous batching cannot run it: {one_line(error)}; use "
            "`seedbed generate`"
        ) from None
    return manager

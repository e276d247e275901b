"""A real model on real questions, offline: SmolLM2-135M-Instruct out of a package, in memory and saved."""

import socket

import pytest

from seedbed.eval.harness import Asked, harness, load_tasks
from seedbed.files.parts import Parts

pytest.importorskip("lm_eval")
pytestmark = [pytest.mark.slow, pytest.mark.realdata]


def test_smollm2_answers_better_than_chance(real_data, smollm2_model, monkeypatch):
    """50 questions of four choices, and 68 pairs of BLiMP: far from 25 % and 50 %."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    scores = {}
    for task, limit in (("arc_easy", 50), ("blimp", 2)):
        asked = Asked((task,), real_data / "evals", limit)
        (result,) = harness(smollm2_model, load_tasks(asked), asked, Parts(None, {}), lambda _: None)
        scores[task] = next(one.score for one in result.scored if one.score.metric == "acc")
    assert (scores["arc_easy"].items, scores["blimp"].items) == (50, 68)
    for task, chance in (("arc_easy", 0.25), ("blimp", 0.5)):
        assert scores[task].value - 2 * scores[task].stderr > chance

"""What a run's metrics say of its weights during training, as its outcome has it."""

import json
from pathlib import Path

from seedbed.measure.trajectory import MEASURES
from seedbed.study.outcome import Outcome, read_outcome, write_outcome
from seedbed.study.work import gathered


def test_weights_are_a_row_a_role_with_medians_over_layers(tmp_path: Path) -> None:
    def layer(value: float, **other: object) -> dict[str, object]:
        return dict.fromkeys(MEASURES, value) | {"problem": None} | other

    components = {
        "attn.q/0": layer(1.0), "attn.q/1": layer(5.0), "attn.q/2": layer(2.0), "embed": layer(3.0, stable_rank=None),
    }  # fmt: skip
    row = {"kind": "weights", "step": 4, "tokens": 40, "components": components}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    write_outcome(tmp_path, Outcome("key", "finished", **gathered(tmp_path)))
    outcome = read_outcome(tmp_path)
    assert outcome is not None
    ((tokens, (query, embed)),) = outcome.weights
    assert (tokens, query["role"], query["stable_rank"], query["problem"]) == (40, "attn.q", 2.0, None)
    assert (embed["role"], embed["stable_rank"], embed["row_cosine"]) == ("embed", None, 3.0)

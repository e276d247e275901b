"""What a study found: the outcomes of its runs, put together over seeds."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from seedbed.measure.table import Rows
from seedbed.report.study_rows import CellRow, ConfigRow, RunRow, StudyResult, TuneRow
from seedbed.study.compared import Compared, arm, final_loss, named, told
from seedbed.study.looks import gradient_rows, layer_rows, look_rows, token_gain_rows, weights_rows
from seedbed.study.losses import difference_rows, loss_rows, slope_rows
from seedbed.study.outcome import Outcome
from seedbed.study.plan import Plan
from seedbed.study.scores import score_rows
from seedbed.study.sizes import size_rows
from seedbed.study.trends import curve_rows, knob_rows, optimum_rows, tokens_rows
from seedbed.study.trial import ELSEWHERE, Cell, Trial
from seedbed.train.run import flat


def results(plan: Plan, outcomes: Mapping[str, Outcome], runs: Path) -> StudyResult:
    """Put together what of ``plan`` has an outcome; ``runs`` is the folder that the runs lie in by key.

    A run that is diverged, failed or not there is a row with its reason, and in no mean. Raises nothing of its own:
    what cannot be computed is told in ``problems``.
    """
    spec, found = plan.spec, Compared(plan, outcomes)
    rows = _run_rows(found, outcomes, runs)
    curves, curve_problems = curve_rows(found)
    tokens, token_problems = tokens_rows(found)
    sizes = size_rows(found)
    optima, movements, optimum_problems = optimum_rows(found)
    token_gains, gain_problems = token_gain_rows(found)
    scores, evaluated = score_rows(found)
    configs, shared = _configs(found)
    done = [outcomes[key] for key in dict.fromkeys(row.key for row in rows) if key in outcomes]
    kept = {str(trial.config.data.store): plan.fingerprint(trial) for trial in _first_trials(found)}
    return StudyResult(
        name=spec.name, question=spec.question, source=spec.source or "", notes=dict(spec.notes),
        axis=spec.compare.axis, baseline=named(spec.compare.axis, spec.compare.baseline), optimum=spec.optimum or "",
        observed=list(spec.observe), arms=list(dict.fromkeys(arm(cell.levels) for cell in plan.cells)),
        sizes=found.sizes, seeds=list(spec.seeds), tuning_seed=None if spec.tune is None else spec.tune.seed,
        tuned_paths=[] if spec.tune is None else list(spec.tune.grid), shares=found.shares,
        runs=rows, cells=_cell_rows(found, outcomes, rows), tuning=_tune_rows(plan, outcomes),
        losses=loss_rows(found), differences=difference_rows(found), slopes=slope_rows(found),
        curves=curves, gradients=gradient_rows(found), tokens_to_loss=tokens, scaling=sizes.scaling,
        effective_sizes=sizes.gains, fits=sizes.fits, effective_notes=sizes.notes, knob=knob_rows(found), optima=optima,
        movements=movements, looks=look_rows(found), weights=weights_rows(found), layers=layer_rows(found),
        scores=scores, evaluated=evaluated, token_gains=token_gains, configs=configs, shared=shared,
        specification=spec.dump(), data=kept,
        versions=_versions(done), threads=_counted(Counter(str(one.threads) for one in done)),
        problems=[
            *plan.rounded(), *plan.unobserved(outcomes), *curve_problems, *token_problems, *sizes.problems,
            *optimum_problems, *gain_problems,
        ],
    )  # fmt: skip


def _run_rows(found: Compared, outcomes: Mapping[str, Outcome], runs: Path) -> Rows[RunRow]:
    """All runs that are known by now, those of cells that share a run included."""
    rows: Rows[RunRow] = Rows()
    for cell in found.plan.cells:
        for trial in [*found.plan.tuning(cell, outcomes), *found.trials[cell]]:
            rows.append(_run_row(trial, outcomes.get(trial.key), runs))
    return rows


def _run_row(trial: Trial, outcome: Outcome | None, runs: Path) -> RunRow:
    status, reason = _status(trial, outcome, runs)
    one = outcome or Outcome(trial.key, "failed")
    made = max(0, one.steps - (0 if one.branched is None else trial.config.train.steps - trial.own_steps))
    loss = None if outcome is None else final_loss(outcome)
    step_tokens = trial.tokens // trial.config.train.steps
    return RunRow(
        key=trial.key, stage=trial.stage, arm=arm(trial.cell.levels), size=trial.cell.size, share=trial.share,
        seed=trial.seed, tuned=told(trial.tuned), status=status, reason=reason, nats_per_token=loss,
        bits_per_byte=one.bits_per_byte if loss is not None else None, steps=one.steps,
        tokens=one.steps * step_tokens, own_tokens=made * step_tokens, flops=trial.flops * made / trial.own_steps,
        train_s=one.train_s, wall_s=one.wall_s, peak_mb=one.peak_mb,
        threads=one.threads, branched=one.branched,
    )  # fmt: skip


def _status(trial: Trial, outcome: Outcome | None, runs: Path) -> tuple[str, str]:
    if outcome is None:
        begun = (runs / trial.key).is_dir()
        return "missing", "begun, not ended" if begun else "not begun"
    if outcome.status == "finished" and final_loss(outcome) is None:
        return "failed", f"ended with a held-out loss of {outcome.nats_per_token}"
    return outcome.status, outcome.reason or ""


def _cell_rows(found: Compared, outcomes: Mapping[str, Outcome], runs: Rows[RunRow]) -> Rows[CellRow]:
    plan, rows = found.plan, Rows[CellRow]()
    planned = len(plan.spec.seeds) * len(plan.spec.shares)
    for cell, trial in zip(plan.cells, _first_trials(found), strict=True):
        chosen = plan.chosen(cell, outcomes)
        own = [row for row in runs if (row.arm, row.size) == (arm(cell.levels), cell.size)]
        count = Counter((row.stage, row.status) for row in own)
        ended = [count["compare", status] for status in ("finished", "diverged", "failed")]
        rows.append(
            CellRow(
                arm=arm(cell.levels), size=cell.size, width=trial.config.model.d_model, parameters=trial.parameters,
                non_embedding=trial.non_embedding, tuned=told(chosen.tuned or {}), problem=chosen.problem or "",
                tune_finished=count["tune", "finished"], tune_diverged=count["tune", "diverged"],
                tune_failed=count["tune", "failed"], tune_missing=count["tune", "missing"],
                finished=ended[0], diverged=ended[1], failed=ended[2], missing=planned - sum(ended),
            )
        )  # fmt: skip
    return rows


def _tune_rows(plan: Plan, outcomes: Mapping[str, Outcome]) -> Rows[TuneRow]:
    rows: Rows[TuneRow] = Rows()
    for cell in plan.cells:
        trials = [trial for trial in plan.tuning(cell, outcomes) if trial.key in outcomes]
        losses = {trial.key: final_loss(outcomes[trial.key]) for trial in trials}
        finite = [trial for trial in trials if losses[trial.key] is not None]
        best = min(finite, key=lambda trial: losses[trial.key] or 0.0, default=None)
        chosen = plan.chosen(cell, outcomes).tuned
        for trial in trials:
            for path, value in trial.tuned.items():
                others = {other: each for other, each in trial.tuned.items() if other != path}
                on_line = all(best is not None and best.tuned[other] == each for other, each in others.items())
                status, loss = outcomes[trial.key].status, losses[trial.key]
                at = dict(trial.tuned) == chosen, on_line
                rows.append(TuneRow(arm(cell.levels), cell.size, path, value, told(others), status, loss, *at))
    return rows


def _first_trials(found: Compared) -> list[Trial]:
    """Of each cell the whole run of the first seed; without its tuned values where nothing is chosen."""
    return [(found.trials[cell] or found.plan.comparison(cell, {}))[0] for cell in found.plan.cells]


def _configs(found: Compared) -> tuple[Rows[ConfigRow], dict[str, str]]:
    """Fields in which cells and shares differ, and those that all have alike; seeds and folders apart."""
    seen: dict[tuple[Cell, float], dict[str, Any]] = {}
    tuned = [] if found.plan.spec.tune is None else list(found.plan.spec.tune.grid)
    for cell in found.plan.cells:
        trials = found.trials[cell] or found.plan.comparison(cell, {})
        for trial in trials[: len(found.shares)]:
            values = {
                path: of for path, of in flat(trial.config.dump()).items() if path not in (*ELSEWHERE, "run.seed")
            }
            seen[cell, trial.share] = values | ({} if found.trials[cell] else dict.fromkeys(tuned, "not chosen"))
    paths = list(dict.fromkeys(path for values in seen.values() for path in values))
    texts = {place: {path: _text(values.get(path)) for path in paths} for place, values in seen.items()}
    differ = [path for path in paths if len({values[path] for values in texts.values()}) > 1]
    rows = Rows[ConfigRow](
        ConfigRow(arm(cell.levels), cell.size, share, path, values[path])
        for (cell, share), values in texts.items()
        for path in differ
    )
    first = next(iter(texts.values()))
    return rows, {path: first[path] for path in paths if path not in differ}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _versions(done: list[Outcome]) -> dict[str, str]:
    """Of all runs; where they differ, how many had which."""
    names = dict.fromkeys(name for one in done for name in one.versions)
    return {name: _counted(Counter(one.versions.get(name, "none") for one in done)) for name in names}


def _counted(found: Counter[str]) -> str:
    if len(found) < 2:
        return "".join(found)
    return ", ".join(f"{value} ({count} runs)" for value, count in found.most_common())

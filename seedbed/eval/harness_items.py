"""What lm-evaluation-harness found, as scores with the values of single items."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from seedbed.eval.local_tasks import Loaded
from seedbed.eval.scores import Better, Items, Score, Scored, macro, scored

if TYPE_CHECKING:
    from lm_eval.api.group import Group

_UNITS = {"bits_per_byte": "bits/byte"}
_SHARES = ("acc", "exact_match")
"""How names of metrics begin that are shares of items."""


def scored_tasks(model: str, one: Loaded, results: Any) -> tuple[list[Scored], list[Score]]:
    """Each metric of each task, and of each group that has one, as items with their scores; and what is no mean over
    items, as the harness gives it."""
    parts: dict[tuple[str, str], Items] = {}
    others = []
    found: list[Scored] = []
    for name, task in one.tasks.items():
        aggregations: dict[str, Any] = task.aggregation() or {}
        subset = name if one.groups else "all"
        for key in _metrics(results["results"][name]):
            metric, chosen = key.split(",", 1)
            shown, unit = _shown(key), _unit(metric)
            better = _better(results["higher_is_better"][name].get(metric, True))
            rows = [sample for sample in results["samples"][name] if sample["filter"] == chosen and metric in sample]
            owner = one.name if one.groups else name
            items = _items(owner, subset, shown, name, rows, metric, aggregations.get(metric))
            if items is None:
                value, error = results["results"][name][key], results["results"][name].get(_error(key))
                error = None if isinstance(error, str) else error
                others.append(Score(model, owner, subset, shown, value, error, len(rows), unit, better))
                continue
            parts[name, key] = items
            found.append(scored(model, items, unit, better))
    for group in one.groups.values():
        found[0:0] = _of_group(model, one.name, group, parts, results)
    return found, others


def _of_group(
    model: str, name: str, group: "Group", parts: dict[tuple[str, str], Items], results: Any
) -> Iterator[Scored]:
    """The metrics that a group sums up: means of its parts' means, or of all its items."""
    leaves = [task.task_name for task in group.get_all_tasks()]
    weights = {one.metric: one.weight_by_size for one in group.aggregate_metric_list or []}
    for key in _metrics(results["results"][group.name]):
        metric = key.split(",", 1)[0]
        members = [parts[leaf, key] for leaf in leaves if (leaf, key) in parts]
        if len(members) < len(leaves):
            continue
        subset = "all" if group.name == name else group.name
        better = _better(results["higher_is_better"].get(group.name, {}).get(metric, True))
        items = _joined(members, subset) if weights[metric] else macro(members, subset)
        yield scored(model, items, _unit(metric), better)


def _joined(parts: Sequence[Items], subset: str) -> Items:
    """All items alike; the parts are strata."""
    return replace(
        parts[0],
        subset=subset,
        ids=[i for part in parts for i in part.ids],
        values=[value for part in parts for value in part.values],
        strata=[part.subset for part in parts for _ in part.ids],
    )


def _items(
    owner: str, subset: str, shown: str, task: str, rows: list[dict[str, Any]], metric: str, aggregate: Callable | None
) -> Items | None:
    """None where the metric is no mean over items, or the exponential of one."""
    from lm_eval.api import metrics

    ids = [f"{task}/{row['doc_id']}/{row['doc_hash'][:12]}" for row in rows]
    values = [row[metric] for row in rows]
    if aggregate in (None, metrics.mean):
        return Items(owner, subset, shown, ids, [float(value) for value in values])
    if aggregate is metrics.perplexity:
        return Items(owner, subset, shown, ids, [-float(value) for value in values], scale="exp")
    if aggregate not in (metrics.weighted_perplexity, metrics.bits_per_byte):
        return None
    bits = aggregate is metrics.bits_per_byte
    weights = [float(weight) for _, weight in values]
    nats = [-float(nats) / weight for nats, weight in values]
    means = [value / math.log(2) for value in nats] if bits else nats
    return Items(owner, subset, shown, ids, means, weights, scale="mean" if bits else "exp")


def _metrics(results: dict[str, Any]) -> list[str]:
    """`metric,filter` of what was measured."""
    return [key for key in results if "," in key and not key.split(",", 1)[0].endswith("_stderr")]


def _error(key: str) -> str:
    metric, chosen = key.split(",", 1)
    return f"{metric}_stderr,{chosen}"


def _shown(key: str) -> str:
    """The name of a metric; with its filter, where there is one."""
    return key.removesuffix(",none")


def _unit(metric: str) -> str:
    return _UNITS.get(metric, "share" if metric.startswith(_SHARES) else "")


def _better(higher: bool | None) -> Better:
    return "lower" if higher is False else "higher"

"""Races of metrics of generated ids: what each row scored, beside its teacher-forced loss."""

from __future__ import annotations

from hf_trainplus.results import ExampleResults


def scored(losses: ExampleResults, scores: ExampleResults) -> ExampleResults:
    """Return rows with their teacher-forced loss and what their generated ids scored.

    Args:
        losses: (n,) rows with losses, in any order.
        scores: the same rows with scores and statistics, in any order.

    Example:
        >>> losses = ExampleResults([2, 0], [1.0, 3.0], [1, 1])
        >>> rows = scored(losses, ExampleResults([0, 2], [0, 0], [0, 0], scores={"exact_match": [1.0, 0.0]}))
        >>> rows.index.tolist(), rows.loss_sum.tolist(), rows.scores["exact_match"].tolist()
        ([0, 2], [3.0, 1.0], [1.0, 0.0])
    """
    losses, scores = losses.in_dataset_order(), scores.in_dataset_order()
    return ExampleResults(
        losses.index,
        losses.loss_sum,
        losses.target_count,
        scores=scores.scores,
        statistics=scores.statistics,
        groups=losses.groups,
        identity=losses.identity,
    )


def generation_keys(results: ExampleResults, prefix: str) -> dict[str, float]:
    """Say of every metric whether it was computed on generated ids, and for how many rows these were generated.

    Args:
        results: rows of a race.
        prefix: put before every key.

    Example:
        >>> rows = ExampleResults([0, 2], [1.0, 1.0], [1, 1], scores={"exact_match": [1.0, 0.0]})
        >>> generation_keys(rows, "eval")
        {'eval_exact_match_generated': 1.0, 'eval_loss_generated': 0.0, 'eval_generation_examples': 2}
    """
    names = dict.fromkeys([*results.scores, *results.statistics])
    marks = {f"{prefix}_{name}_generated": 1.0 for name in names}
    return {**marks, f"{prefix}_loss_generated": 0.0, f"{prefix}_generation_examples": len(results)}

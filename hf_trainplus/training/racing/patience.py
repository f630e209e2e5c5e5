"""Early stopping that a race judges itself, taken over from the callback that would judge noisy levels."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from transformers import EarlyStoppingCallback

from hf_trainplus.evaluation.ranks import Ranks

if TYPE_CHECKING:
    from transformers import Trainer

    from hf_trainplus.decisions.race import RaceVerdict


@dataclass(frozen=True)
class TakenPatience:
    """Patience that the race judges.

    Args:
        patience: evaluations, steps or seconds without improvement; None when nothing stops the run.
        threshold: least improvement that resets the count, in units of the metric.
        scale: where the run stands on patience's scale; None counts evaluations.
        owner: our callback whose patience it is; it has thresholds of its own and keeps in checkpoints that it stopped.
        removed: upstream's callback whose place the race takes for this run.
    """

    patience: float | None = None
    threshold: float = 0.0
    scale: Callable[[], float] | None = None
    owner: Any = None
    removed: EarlyStoppingCallback | None = None

    @property
    def numbers(self) -> list[float] | None:
        """Return patience and threshold; None when nothing stops the run."""
        return None if self.patience is None else [self.patience, self.threshold]

    def place(self) -> float | None:
        """Return where the run stands, alike on all ranks."""
        return None if self.scale is None else Ranks.current().from_first(self.scale())

    def sides(self) -> tuple[float, ...]:
        """Return levels of the metric that stop the run."""
        return () if self.owner is None else self.owner.thresholds()

    def stops(self, verdict: RaceVerdict) -> bool:
        """Say whether the run stops at an evaluation whose ``sides`` are the last levels of the verdict."""
        if self.owner is None:
            return verdict.stop
        asked = verdict.levels[len(verdict.levels) - len(self.sides()) :]
        finite = verdict.value is not None and math.isfinite(verdict.value)
        return bool(
            self.owner.judge_elsewhere(stop=verdict.stop, finite=finite, reached=[side.reached for side in asked])
        )


def stoppers(trainer: Trainer) -> list[Any]:
    """Return the callbacks that stop a run early."""
    callbacks = trainer.callback_handler.callbacks
    return [one for one in callbacks if isinstance(one, EarlyStoppingCallback) or hasattr(one, "judged_elsewhere")]


def why_not(trainer: Trainer, key: str) -> str | None:
    """Return why early stopping needs the exact value of every evaluation; None when a race can judge it.

    Args:
        trainer: its callbacks count.
        key: of the metric that is raced.
    """
    found = stoppers(trainer)
    if len(found) > 1:
        return f"{', '.join(type(one).__name__ for one in found)} stop the run, and a race judges one of them"
    if not found:
        return None
    taken = _taken(trainer, found[0])
    if taken.owner is not None and taken.owner.key(trainer.args) != key:
        return f"PatienceCallback watches {taken.owner.key(trainer.args)!r}, and {key!r} is raced"
    if key.endswith("_perplexity") and (taken.threshold > 0 or taken.sides()):
        return "thresholds are in units of perplexity: name the loss in metric_for_best_model, and give them as losses"
    return None


def take_patience(trainer: Trainer, say: Callable[[str], None]) -> TakenPatience:
    """Take the patience of the trainer's callback: upstream's is removed, ours told that it is judged elsewhere.

    Args:
        trainer: its callbacks are looked through.
        say: told once that a callback was replaced.
    """
    for callback in stoppers(trainer):
        taken = _taken(trainer, callback)
        if taken.removed is not None:
            trainer.remove_callback(callback)
            say(
                "EarlyStoppingCallback would judge noisy levels in a race: its patience and threshold are judged "
                "by the race itself"
            )
        else:
            callback.judged_elsewhere = True
        return taken
    return TakenPatience()


def give_back(trainer: Trainer, taken: TakenPatience) -> None:
    """Give the trainer back what was taken for an earlier run; the next one may not be a race."""
    if taken.removed is not None:
        trainer.add_callback(taken.removed)
        # the state of this run was made without it; declared as a list, it is a dict once TrainerState is made
        entries = cast("dict[str, Any]", trainer.state.stateful_callbacks)
        entries.setdefault(type(taken.removed).__name__, taken.removed.state())


def _taken(trainer: Trainer, callback: Any) -> TakenPatience:
    """Read a callback's patience in the unit that it counts."""
    if isinstance(callback, EarlyStoppingCallback):
        patience, threshold = float(callback.early_stopping_patience), float(callback.early_stopping_threshold or 0.0)
        return TakenPatience(patience, threshold, removed=callback)
    rule = callback.patience
    scales: dict[str, Callable[[], float]] = {
        "steps": lambda: float(trainer.state.global_step),
        "seconds": lambda: float(callback.elapsed_seconds),
    }
    return TakenPatience(rule.patience, rule.threshold, scales.get(rule.unit), callback)

"""Early stopping that a race judges itself, taken over from the callback that would judge noisy levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from transformers import EarlyStoppingCallback

from hf_trainplus.evaluation.ranks import Ranks

if TYPE_CHECKING:
    from transformers import Trainer


@dataclass(frozen=True)
class TakenPatience:
    """Patience that the race judges.

    Args:
        patience: evaluations, steps or seconds without improvement; None when nothing stops the run.
        threshold: least improvement that resets the count, in units of the metric.
        scale: where the run stands on patience's scale; None counts evaluations.
    """

    patience: float | None = None
    threshold: float = 0.0
    scale: Callable[[], float] | None = None

    def place(self) -> float | None:
        """Return where the run stands, alike on all ranks."""
        return None if self.scale is None else Ranks.current().from_first(self.scale())


def take_patience(trainer: Trainer, say: Callable[[str], None]) -> TakenPatience:
    """Take the patience of the trainer's callback: upstream's is removed, ours told that it is judged elsewhere.

    Args:
        trainer: its callbacks are looked through; the first that stops early counts.
        say: told once that a callback was replaced.
    """
    for callback in list(trainer.callback_handler.callbacks):
        if isinstance(callback, EarlyStoppingCallback):
            trainer.remove_callback(callback)
            say(
                "EarlyStoppingCallback would judge noisy levels in a race: its patience and threshold are judged "
                "by the race itself"
            )
            return TakenPatience(
                float(callback.early_stopping_patience), float(callback.early_stopping_threshold or 0.0)
            )
        if hasattr(callback, "judged_elsewhere"):
            return _of_ours(trainer, callback)
    return TakenPatience()


def _of_ours(trainer: Trainer, callback: Any) -> TakenPatience:
    """Let the race judge a ``PatienceCallback``'s patience in the unit that it counts."""
    callback.judged_elsewhere = True
    rule = callback.patience
    scales: dict[str, Callable[[], float]] = {
        "steps": lambda: float(trainer.state.global_step),
        "seconds": lambda: float(callback.elapsed_seconds),
    }
    return TakenPatience(rule.patience, rule.threshold, scales.get(rule.unit))

"""The bar that an evaluation draws: examples, tokens a second, time left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tqdm.auto import tqdm  # type: ignore[import-untyped, unused-ignore]
from transformers import ProgressCallback, Trainer, TrainerControl, TrainerState, TrainingArguments

from hf_trainplus.training.progress import EvaluationProgress, ProgressReading

_KNOWN = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} examples [{elapsed}{postfix}]"
_UNKNOWN = "{desc}: {n_fmt} examples [{elapsed}{postfix}]"


class EvaluationProgressCallback(ProgressCallback):
    """Upstream's progress bars, of which the evaluation's counts examples in place of batches.

    Upstream's estimate takes batches to be alike; sorted by length the first take longest. The training's bar and the
    lines in the log stay upstream's. Only the main process draws.

    Args:
        progress: returns the running pass; None lets upstream draw.
        max_str_len: longest text that is shown of a logged value.

    Example:
        >>> EvaluationProgressCallback(lambda: None).prediction_bar is None
        True
    """

    def __init__(self, progress: Callable[[], EvaluationProgress | None], max_str_len: int = 100) -> None:
        super().__init__(max_str_len)
        self.prediction_bar: Any = None
        self._progress = progress
        self._drawn: EvaluationProgress | None = None

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        eval_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Draw after a batch; a new pass begins a new bar."""
        progress = self._progress()
        if progress is None:
            draw = super().on_prediction_step
            draw(args, state, control, eval_dataloader=eval_dataloader, **kwargs)  # type: ignore[no-untyped-call, unused-ignore]
            return
        if not state.is_world_process_zero:
            return
        reading = progress.reading()
        if progress is not self._drawn or self.prediction_bar is None:
            self._begin(progress, reading)
        self.prediction_bar.set_postfix_str(shown(reading), refresh=False)
        self.prediction_bar.update(reading.examples - self.prediction_bar.n)

    def _begin(self, progress: EvaluationProgress, reading: ProgressReading) -> None:
        if self.prediction_bar is not None:
            self.prediction_bar.close()
        self._drawn = progress
        self.prediction_bar = tqdm(
            total=reading.examples_total,
            desc=progress.name,
            leave=self.training_bar is None,
            dynamic_ncols=True,
            bar_format=_UNKNOWN if reading.examples_total is None else _KNOWN,
        )


def shown(reading: ProgressReading) -> str:
    """Put the speed and the time left into words; what is not known is left out.

    Example:
        >>> shown(ProgressReading(3, 9, 12345.6, 61.0)), shown(ProgressReading(3, None, None, None))
        ('12,346 tokens/s, 01:01 left', '')
    """
    parts = []
    if reading.tokens_per_second is not None:
        parts.append(f"{reading.tokens_per_second:,.0f} tokens/s")
    if reading.seconds_left is not None:
        parts.append(f"{tqdm.format_interval(reading.seconds_left)} left")
    return ", ".join(parts)


def draw_examples(trainer: Trainer, progress: Callable[[], EvaluationProgress | None]) -> None:
    """Put the bar in the place of upstream's own, where that is drawn; subclasses and notebooks keep theirs.

    Args:
        trainer: a trainer with its callbacks in place.
        progress: returns the running pass.
    """
    callbacks = trainer.callback_handler.callbacks
    for place, callback in enumerate(callbacks):
        if type(callback) is ProgressCallback:
            callbacks[place] = EvaluationProgressCallback(progress, callback.max_str_len)

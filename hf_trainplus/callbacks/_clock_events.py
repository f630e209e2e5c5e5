"""Which part of a step begins and ends at which of the Trainer's events."""

from __future__ import annotations

from typing import Any

from hf_trainplus.monitor.step_clock import StepClock

# transformers 5.24, Trainer._run_epoch: the batch is fetched before on_step_begin; from there to
# on_pre_optimizer_step (or on_substep_end) runs forward and backward, with the wait for the device that the Trainer's
# own check for non-finite losses needs; then the optimizer, the schedule and the zeroing up to on_step_end.
_BEGINS = {
    "on_train_begin": "other",
    "on_epoch_begin": "other",
    "on_step_begin": "forward_backward",
    "on_substep_end": "forward_backward",
    "on_pre_optimizer_step": "optimizer",
    "on_optimizer_step": "optimizer",
    "on_evaluate": "other",
    "on_save": "other",
}


class ClockEvents:
    """Moves a ``StepClock`` along with the Trainer's events.

    Without a trainer to attach to, an evaluation is known by its batches and logging by its end; attached, both are
    timed around the trainer's own methods and these events change nothing inside them. Unattached, the optimizer ends
    with its step: from there on other callbacks may be at work before this one hears of the step's end.

    Args:
        clock: the clock to move.
        attached: whether ``evaluate`` and ``log`` are timed elsewhere.
    """

    def __init__(self, clock: StepClock, *, attached: bool) -> None:
        self._clock = clock
        self._attached = attached

    def before(self, event: str) -> None:
        """An event is about to be handed to the callbacks."""
        if event == "on_save":
            # a checkpoint has no event at its beginning: it began where the last thing before it ended
            self._clock.lap("saving")
        elif not self._attached and event == "on_prediction_step" and self._clock.part != "evaluation":
            self._clock.lap("evaluation")
            self._clock.switch("evaluation")

    def after(self, event: str, *, should_log: bool) -> None:
        """An event has been handed to the callbacks.

        Args:
            event: the event's name.
            should_log: what the callbacks decided.
        """
        if event in ("on_step_end", "on_epoch_end"):
            # the Trainer now gathers the loss over ranks and waits for the device: both are logging's price
            self._clock.switch("logging" if should_log else "other")
        elif event == "on_log":
            if not self._attached and self._clock.part == "logging":
                self._clock.switch("other")
        elif event == "on_optimizer_step" and not self._attached:
            self._clock.switch("other")
        elif event in _BEGINS:
            self._clock.switch(_BEGINS[event])


class LoaderClock:
    """Moves a ``StepClock`` along with the fetches of the training loader (a ``LoaderListener``).

    Args:
        clock: the clock to move.
        attached: whether the fetch stands inside a phase of its own, so that what lies around it can be named.
    """

    def __init__(self, clock: StepClock, *, attached: bool) -> None:
        self._clock = clock
        self._attached = attached
        self.run_starts(skips=False, reads=True)

    def run_starts(self, *, skips: bool, reads: bool) -> None:
        """A run begins.

        Args:
            skips: it reads again what it has had of a stream.
            reads: this rank reads data itself.
        """
        self.hears = True
        self._skips, self._reads = skips, reads
        self._stepped = self._dispatched = False
        self._first = True
        self._fetches = self._skipped = 0

    @property
    def around(self) -> str:
        """The part of the time in which a batch is asked for and nothing is read."""
        if not self._dispatched:
            return "data_wait"
        return "skipping" if self._skipped else "rank_sync"

    def epoch_starts(self, *, dispatched: bool, skipped: int) -> None:
        """A loader begins.

        Args:
            dispatched: one rank reads and the others wait for it.
            skipped: fetches of what a resumed run has had already.
        """
        self._dispatched, self._skipped, self._fetches = dispatched, skipped, 0

    def batch_comes(self) -> None:
        """A batch has been handed out: nothing is skipped any more."""
        self._skipped = 0

    def step_starts(self) -> None:
        """Find out at the first step, unattached, that the loader of a resumed epoch is another one and not heard.

        The wait for data is then not measured in this run; of a stream, what came before the step was mostly skipping.
        """
        if self._stepped:
            return
        self._stepped = True
        if self._reads and not self._fetches:
            self.hears = False
            if self._skips:
                self._clock.lap("skipping")

    def loader_starts(self) -> None:
        """Before an epoch, random states are synchronised over ranks: that waits for the slowest."""
        self._first = True
        if self.hears:
            self._clock.lap("rank_sync" if self._attached else "other")

    def fetch_starts(self) -> None:
        """What came before is the last batch's copy or dispatch, or, at an epoch's start, the workers' start."""
        if not self.hears:
            return
        if self._first:
            self._clock.lap("data_wait")
        elif self._attached:
            between = "rank_sync" if self._dispatched else "host_to_device"
            self._clock.lap("skipping" if self._fetches < self._skipped else between)
        else:
            self._clock.switch("other")
        self._first = False

    def fetch_ends(self, batch: Any) -> None:
        """The fetch itself is the wait for data."""
        self._fetches += 1
        if self.hears:
            self._clock.lap("skipping" if self._fetches <= self._skipped else "data_wait")

"""The plain options of ``BudgetCallback``: checked once, kept in the checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.keeping.measured import Phase
from hf_trainplus.budget.signals import parse_signals
from hf_trainplus.budget.stops import parse_deadline


@dataclass(frozen=True)
class BudgetOptions:
    """See ``BudgetCallback``; every field is a plain JSON value.

    Raises:
        ValueError: an option that does not parse, or two that do not fit together.
    """

    budget: dict[str, float] = field(default_factory=dict)
    usd_per_device_hour: float | None = None
    deadline: str | float | None = None
    stop_signals: str = ""
    stop_file: str | None = None
    lr_follows_budget: bool = False
    evaluate_at_stop: bool | None = None
    save_at_stop: bool | None = None
    margin_seconds: float = 1.0
    expected_seconds: Mapping[Phase, float] = field(default_factory=dict)
    count_from_process_start: bool = True

    def __post_init__(self) -> None:
        parse_signals(self.stop_signals)
        if self.deadline is not None:
            parse_deadline(self.deadline)
        if self.lr_follows_budget and not self.budget:
            raise ValueError("lr_follows_budget=True without a budget; give one, e.g. budget='gpu_hours=8'.")
        if "usd" in self.budget and self.usd_per_device_hour is None:
            raise ValueError(f"budget usd={self.budget['usd']:g} needs a price. Set usd_per_device_hour=2.5.")
        if self.usd_per_device_hour is not None and not self.usd_per_device_hour > 0:
            raise ValueError(f"usd_per_device_hour={self.usd_per_device_hour}; allowed are prices above 0.")
        if not (math.isfinite(self.margin_seconds) and self.margin_seconds >= 0):
            raise ValueError(f"margin_seconds={self.margin_seconds}; allowed are seconds >= 0.")
        for phase, seconds in self.expected_seconds.items():
            if phase not in ("evaluation", "save") or not seconds > 0:
                raise ValueError(
                    f"expected_seconds={dict(self.expected_seconds)}; allowed are 'evaluation' and 'save' with seconds "
                    "above 0. Write expected_seconds={'evaluation': 60}."
                )

    def limits(self) -> Budget:
        """Return the budget."""
        return Budget.parse(self.budget)

    def plain(self) -> dict[str, Any]:
        """Return the options as ``BudgetCallback(**options)`` takes them."""
        return asdict(self)

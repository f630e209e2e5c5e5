"""Draw rows that stand for a whole dataset."""

from __future__ import annotations

from hf_trainplus.decisions.strategies.subset_value import Subset

__all__ = ["Subset"]

"""Ready-made stages: from small, fast evaluations over the standard set to the last word before use."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

# A preset is what a stage says by default; what the stage says itself wins, inside `eval` key by key.
PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # many cheap looks: a stratified subset of 512 rows after every epoch
        "exploration": {"eval": {"mode": "subset", "subset_size": 512, "strategy": "epoch", "every": 1}},
        # fewer, exact ones: the standard set after every second epoch
        "tuning": {"eval": {"mode": "full", "strategy": "epoch", "every": 2}},
        # no training: the full set and all extra test cases, once
        "production": {"train": False, "eval": {"mode": "full", "extra_datasets": ["*"]}},
    }
)


def with_preset(stage: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stage's settings on top of its preset's; without a known ``preset`` they are returned as they are.

    Example:
        >>> with_preset({"name": "look", "preset": "tuning", "eval": {"every": 1}})["eval"]
        {'mode': 'full', 'strategy': 'epoch', 'every': 1}
    """
    preset = PRESETS.get(str(stage.get("preset")), {})
    merged = {**preset, **stage}
    own = stage.get("eval")
    if "eval" in preset and isinstance(own, Mapping):
        merged["eval"] = {**preset["eval"], **own}
    return merged

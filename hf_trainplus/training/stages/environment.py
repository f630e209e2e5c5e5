"""How ``trainplus run`` tells a process which plan it runs and which stage of it."""

from __future__ import annotations

import os
from collections.abc import Mapping

PLAN = "TRAINPLUS_PLAN"
STAGE = "TRAINPLUS_STAGE"


def launched_stage(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the name of the one stage that this process runs (``TRAINPLUS_STAGE``), None outside ``trainplus run``.

    Example:
        >>> launched_stage({"TRAINPLUS_STAGE": "tune"}), launched_stage({})
        ('tune', None)
    """
    return (os.environ if environment is None else environment).get(STAGE) or None


def launched_plan(environment: Mapping[str, str] | None = None) -> str | None:
    """Return the plan's file that ``trainplus run`` was given (``TRAINPLUS_PLAN``), None outside it."""
    return (os.environ if environment is None else environment).get(PLAN) or None

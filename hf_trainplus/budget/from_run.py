"""Reads what a run measured from its checkpoints, so that its own figures replace an estimate."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hf_trainplus.budget.budget import Budget
from hf_trainplus.budget.keeping.headroom import Headroom, headrooms
from hf_trainplus.budget.keeping.measured import Measured, Phase
from hf_trainplus.budget.meter import Progress, Reading
from hf_trainplus.budget.remaining import Rhythm, TimeLeft, time_left
from hf_trainplus.budget.stops import StopReason

_STATE = "trainer_state.json"
_CALLBACK = "BudgetCallback"
_STAGES = "StageCallback"


@dataclass(frozen=True)
class RunSoFar:
    """A run as its newest usable checkpoint knows it.

    Args:
        checkpoint: folder it was read from.
        step: steps done.
        rhythm: planned end, evaluations and saves; of a plan, those of the stage that runs.
        measured: costs of the phases.
        reading: what is spent.
        budget: limits of the run.
        devices: devices it ran on.
        usd_per_device_hour: price of one, None without.
        stop_reason: why it ended, None while it goes on.
        later_stages_seconds: forecast of the stages that follow, None while one of them cannot be known.
        stage_rooms: what is left under the limits of the stage that runs.
    """

    checkpoint: Path
    step: int
    rhythm: Rhythm
    measured: Measured
    reading: Reading
    budget: Budget
    devices: int
    usd_per_device_hour: float | None
    stop_reason: str | None
    later_stages_seconds: float | None = 0.0
    stage_rooms: tuple[Headroom, ...] = ()

    def time_left(self) -> TimeLeft | None:
        """Forecast the time to the end; nothing is left of a run that ended.

        Returns:
            The forecast, evaluation, saving and later stages included; None before 20 steps are measured, and while a
            later stage cannot be known.
        """
        if self.later_stages_seconds is None:
            return None
        rooms = headrooms(self.budget, self.reading, devices=self.devices, usd_per_device_hour=self.usd_per_device_hour)
        closing: list[Phase] = []
        if self.rhythm.evaluate_every or self.measured.count("evaluation"):
            closing.append("evaluation")
        if self.rhythm.save_every or self.measured.count("save"):
            closing.append("save")
        return time_left(
            self.measured,
            self.rhythm,
            self.step,
            rooms,
            closing=closing,
            later_stages=self.later_stages_seconds,
            stage_rooms=self.stage_rooms,
        )


def read_run(folder: str | Path) -> RunSoFar:
    """Read a run.

    It opens no pickle and loads no weights: only ``trainer_state.json``.

    Args:
        folder: the output folder of a run, or one of its checkpoints.

    Raises:
        ValueError: no checkpoint that can be read, or one without measured durations.
    """
    path = Path(folder)
    for checkpoint in _newest_first(path):
        state = _read(checkpoint / _STATE)
        if state is not None:
            return _run(checkpoint, state)
    raise ValueError(
        f"{path} has no checkpoint with a readable {_STATE}; give the output folder of a run that has saved, or one of "
        "its checkpoint-N folders."
    )


def _newest_first(folder: Path) -> list[Path]:
    if (folder / _STATE).is_file():
        return [folder]
    found = [(int(match[1]), child) for child in folder.glob("checkpoint-*") if (match := _number(child.name))]
    return [child for _, child in sorted(found, reverse=True)]


def _number(name: str) -> re.Match[str] | None:
    return re.fullmatch(r"checkpoint-(\d+)", name)


def _read(path: Path) -> Mapping[str, Any] | None:
    """A kill may leave a torn file; the checkpoint before it is used then."""
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None


def _run(checkpoint: Path, state: Mapping[str, Any]) -> RunSoFar:
    entry = _entry(state, _CALLBACK)
    saved = entry.get("attributes", {}).get("saved")
    if not saved:
        raise ValueError(
            f"{checkpoint} holds no measured durations. Train with callbacks=[BudgetCallback()], which measures also "
            "without a limit."
        )
    meter, rhythm = saved["keeper"]["meter"], Rhythm(**saved["rhythm"])
    stage = _entry(state, _STAGES).get("attributes", {}).get("saved") or {}
    is_over = stage.get("next_stage") is not None or stage.get("reason") is not None
    progress = Progress(
        steps=int(state["global_step"]),
        epochs=state.get("epoch"),
        tokens=state.get("num_input_tokens_seen") or None,
        flops=state.get("total_flos") or None,
    )
    return RunSoFar(
        checkpoint=checkpoint,
        step=int(state["global_step"]),
        rhythm=replace(rhythm, max_steps=int(state["global_step"])) if is_over else rhythm,
        measured=Measured.from_state(saved["keeper"]["measured"]),
        reading=Reading(progress, meter["wall_clock_seconds"], meter["gpu_hours"], meter["energy_kwh"], meter["usd"]),
        budget=Budget(**saved["keeper"]["limits"]),
        devices=int(meter["devices"]),
        usd_per_device_hour=entry["args"].get("usd_per_device_hour"),
        stop_reason=_stop_reason(saved["reason"], stage),
        later_stages_seconds=saved.get("later_stages_seconds", 0.0),
        stage_rooms=() if is_over else tuple(Headroom(**room) for room in saved.get("stage_rooms", ())),
    )


def _entry(state: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = (state.get("stateful_callbacks") or {}).get(name)
    return (found[-1] if isinstance(found, list) else found) or {}


def _stop_reason(reason: str | None, stage: Mapping[str, Any]) -> str | None:
    """At the planned end of a stage the plan says whether the run is over, and why."""
    return stage.get("reason") if stage and reason in (None, StopReason.MAX_STEPS.value) else reason

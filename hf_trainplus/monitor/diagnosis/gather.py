"""From what a run leaves behind (plain JSON values) to evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from hf_trainplus.monitor.diagnosis.evidence import AllocatorEvidence, DeviceEvidence, Evidence, Series, Settings
from hf_trainplus.monitor.rank_table import Spread
from hf_trainplus.monitor.step_clock import NOT_TRAINING


def gather_evidence(
    *,
    log_history: Sequence[Mapping[str, Any]] = (),
    step_clock: Mapping[str, Any] | None = None,
    devices: Mapping[str, Any] | None = None,
    memory: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
) -> Evidence:
    """Put a run's records together; any of them may be absent.

    Args:
        log_history: ``TrainerState.log_history``.
        step_clock: ``StepClockCallback.summary()``, or the file that it wrote.
        devices: ``GPUMonitorCallback.summary()``, or the file that it wrote.
        memory: ``MemoryLeakCallback.summary()``, or the file that it wrote.
        settings: arguments by name; unknown ones are ignored. Those in ``step_clock`` fill what is absent here.

    Returns:
        The evidence; what no record tells is missing.

    Example:
        >>> evidence = gather_evidence(log_history=[{"step": 1, "loss": 2.0}, {"step": 1, "eval_loss": 1.5}])
        >>> evidence.train_loss.values.tolist(), evidence.eval_loss.values.tolist(), evidence.steps is None
        ([2.0], [1.5], True)
    """
    eval_key = _eval_loss_key(log_history)
    return Evidence(
        devices=_devices(devices),
        allocator=_allocator(memory),
        settings=_settings({**((step_clock or {}).get("settings") or {}), **(settings or {})}),
        train_loss=_series(log_history, "loss"),
        eval_loss=_series(log_history, eval_key),
        eval_loss_ci_low=_series(log_history, f"{eval_key}_ci_low"),
        eval_loss_ci_high=_series(log_history, f"{eval_key}_ci_high"),
        grad_norm=_series(log_history, "grad_norm"),
        nonfinite_targets=_nonfinite(log_history),
        **_times(step_clock),
    )


def _times(summary: Mapping[str, Any] | None) -> dict[str, Any]:
    if not summary or not summary.get("steps"):
        return {}
    seconds, total = summary["seconds"], summary["total_seconds"]
    aside = sum(seconds.get(part) or 0.0 for part in NOT_TRAINING)
    ranks = summary.get("ranks") or {}
    world_size = summary.get("world_size", ranks.get("world_size"))
    # a rank that did not exchange rows knows nothing about the others
    spreads = ranks.get("spreads") or {} if ranks.get("world_size") == world_size else {}
    found: dict[str, Any] = {
        "steps": int(summary["steps"]),
        "step_seconds": (total - aside) / summary["steps"],
        "shares": {part: value / total for part, value in seconds.items() if value is not None and total > 0},
        "device_idle_share": summary.get("device_idle_share"),
        "world_size": world_size,
        "spreads": {name: Spread(**values) for name, values in spreads.items()},
    }
    communication, whole = found["spreads"].get("communication"), found["spreads"].get("total")
    if communication is not None and whole is not None and whole.mean > 0:
        found["communication_share"] = communication.mean / whole.mean
    if ranks.get("world_size", 1) > 1:
        # of several ranks the mean tells more than this rank alone
        found["shares"] = dict(ranks["shares"])
    return found


def _devices(summary: Mapping[str, Any] | None) -> tuple[DeviceEvidence, ...]:
    if not summary:
        return ()
    statistics = summary.get("statistics", {})

    def tell(index: int, name: str, what: str, phase: str = "all") -> float | None:
        entry = statistics.get(f"gpu{index}/{name}", {}).get(phase)
        return None if entry is None else entry[what]

    found = []
    for facts in summary.get("devices", ()):
        index = facts["index"]
        use = tell(index, "utilization_percent", "mean", "train_step")
        found.append(
            DeviceEvidence(
                index=index,
                name=facts.get("name"),
                utilization_percent=use if facts.get("utilization") == "measured" else None,
                memory_used_gib=tell(index, "memory_used_gib", "max"),
                memory_total_gib=tell(index, "memory_total_gib", "max"),
                power_watts=tell(index, "power_watts", "mean", "train_step"),
                temperature_celsius=tell(index, "temperature_celsius", "max"),
                power_throttled_percent=tell(index, "power_throttled_percent", "mean"),
                thermal_throttled_percent=tell(index, "thermal_throttled_percent", "mean"),
            )
        )
    return tuple(found)


def _allocator(summary: Mapping[str, Any] | None) -> AllocatorEvidence | None:
    told = (summary or {}).get("allocator")
    return None if not told else AllocatorEvidence(**told)


def _settings(known: Mapping[str, Any]) -> Settings:
    names = {field.name for field in fields(Settings)}
    return Settings(**{name: value for name, value in known.items() if name in names and value is not None})


def _series(log_history: Iterable[Mapping[str, Any]], key: str) -> Series:
    pairs = [(entry["step"], entry[key]) for entry in log_history if "step" in entry and _is_number(entry.get(key))]
    # after a resume a step may be logged twice: the newer one counts
    newest = dict(pairs)
    return Series.of(sorted(newest), [newest[step] for step in sorted(newest)])


def _eval_loss_key(log_history: Iterable[Mapping[str, Any]]) -> str:
    """Return ``eval_loss``, or with named evaluation sets, which have none, the first one's loss."""
    keys = [str(key) for entry in log_history for key in entry if key.startswith("eval_") and key.endswith("_loss")]
    return keys[0] if keys and "eval_loss" not in keys else "eval_loss"


def _nonfinite(log_history: Iterable[Mapping[str, Any]]) -> int:
    """Return the rows that evaluations counted, of all sets."""
    counted = (entry[key] for entry in log_history for key in entry if _is_nonfinite_count(key))
    return int(sum(value for value in counted if _is_number(value)))


def _is_nonfinite_count(key: str) -> bool:
    return key.startswith("eval_") and key.endswith("nonfinite")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)

"""Which of the sampled values are worth a key in the logs."""

from __future__ import annotations

from hf_trainplus.monitor.sampler import SamplerCost
from hf_trainplus.monitor.time_weighted import PhaseStatistics

# value -> what is told of it: its time-weighted mean, its largest, or what it has reached
_TOLD = {
    "utilization_percent": ("mean",),
    "memory_used_gib": ("mean", "max"),
    "process_memory_gib": ("mean", "max"),
    "power_watts": ("mean",),
    "temperature_celsius": ("mean", "max"),
    "sm_clock_mhz": ("mean",),
    "throttled_percent": ("mean",),
    "nvlink_tx_gib_per_second": ("mean",),
    "nvlink_rx_gib_per_second": ("mean",),
    "pcie_tx_bytes_per_second": ("mean",),
    "pcie_rx_bytes_per_second": ("mean",),
    "energy_wh": ("last",),
    "cpu_percent": ("mean",),
    "process_cpu_percent": ("mean",),
}
_BY_PHASE = "utilization_percent"


def device_log_values(window: PhaseStatistics, cost: SamplerCost | None = None) -> dict[str, float]:
    """Boil a window of samples down to log keys.

    The rest of what is sampled (limits, disk, network, extremes) stays in the run's file and summary.

    | key | unit | meaning |
    |---|---|---|
    | ``gpu{i}/utilization_percent`` | % | mean share of time with a kernel running; no key where not measurable |
    | ``gpu{i}/{phase}/utilization_percent`` | % | the same in train_step, waiting, evaluation or saving |
    | ``gpu{i}/memory_used_gib``, ``_max`` | GiB | of the device, by everybody |
    | ``gpu{i}/process_memory_gib``, ``_max`` | GiB | of this process |
    | ``gpu{i}/power_watts`` | W | mean |
    | ``gpu{i}/temperature_celsius``, ``_max`` | °C | of the chip |
    | ``gpu{i}/sm_clock_mhz`` | MHz | mean |
    | ``gpu{i}/throttled_percent`` | % | share of samples with a throttle reason |
    | ``gpu{i}/energy_wh`` | Wh | since the start of the run |
    | ``gpu{i}/pcie_tx_bytes_per_second``, ``_rx_`` | B/s | device to host, host to device |
    | ``gpu{i}/nvlink_tx_gib_per_second``, ``_rx_`` | GiB/s | over all links |
    | ``host/cpu_percent`` | % | of all cores |
    | ``host/process_cpu_percent`` | % | of one core |
    | ``host/memory_used_gib``, ``_max``, ``host/process_memory_gib``, ``_max`` | GiB | machine; this process |
    | ``monitor/cpu_percent`` | % | of one core, by the sampling itself |

    Args:
        window: the samples since the last log; i is the logical (CUDA) index.
        cost: what the sampler has cost since its start.

    Returns:
        key -> value; missing values have no key.

    Example:
        >>> window = PhaseStatistics()
        >>> window.add({"gpu0/utilization_percent": 80.0, "host/disk_free_gib": 9.0}, {"train_step": 1.0})
        >>> device_log_values(window)
        {'gpu0/utilization_percent': 80.0, 'gpu0/train_step/utilization_percent': 80.0}
    """
    values: dict[str, float] = {}
    for name in window.names():
        owner, _, value_name = name.partition("/")
        statistics = window.get(name)
        if statistics is None or statistics.mean is None:
            continue
        for told in _TOLD.get(value_name, ()):
            if told == "mean":
                values[name] = statistics.mean
            elif told == "max":
                values[f"{name}_max"] = statistics.maximum
            else:
                values[name] = statistics.maximum
        if value_name == _BY_PHASE:
            values |= _by_phase(window, owner, name)
    if cost is not None and cost.cpu_percent is not None:
        values["monitor/cpu_percent"] = cost.cpu_percent
    return values


def _by_phase(window: PhaseStatistics, owner: str, name: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for phase in window.phases():
        statistics = window.get(name, phase)
        if phase != "other" and statistics is not None and statistics.mean is not None:
            found[f"{owner}/{phase}/{_BY_PHASE}"] = statistics.mean
    return found

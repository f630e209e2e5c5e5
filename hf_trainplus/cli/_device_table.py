"""The live table of `trainplus monitor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

_COLUMNS = ("device", "use", "memory", "this process", "power", "temperature", "clock", "throttled")


def device_rows(devices: Sequence[Mapping[str, Any]], values: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Return one row of texts a device; "-" where a value is missing, never 0.

    Args:
        devices: as ``device_facts`` returns them.
        values: as ``Sampler.sample`` returns them.

    Example:
        >>> rows = device_rows([{"index": 0, "name": "H200", "utilization": "measured"}],
        ...                    {"gpu0/utilization_percent": 41.0, "gpu0/power_watts": 300.0})
        >>> rows[0][:3], rows[0][4]
        (('0 H200', '41 %', '-'), '300 W')
    """
    return [_row(facts, values) for facts in devices]


def live_view(devices: Sequence[Mapping[str, Any]], values: Mapping[str, float], notices: Sequence[str]) -> Group:
    """Return what is shown in the terminal: the devices, the machine, and what could not be read."""
    table = Table(expand=False)
    for column in _COLUMNS:
        table.add_column(column, justify="left" if column == "device" else "right")
    for row in device_rows(devices, values):
        table.add_row(*row)
    parts: list[Table | Text] = [table] if devices else [Text("no device that can be monitored")]
    parts.append(Text(host_line(values)))
    parts += [Text(notice, style="yellow") for notice in notices]
    return Group(*parts)


def host_line(values: Mapping[str, float]) -> str:
    """Return the machine's line.

    Example:
        >>> host_line({"host/cpu_percent": 12.0, "host/memory_used_gib": 3.5, "host/memory_total_gib": 16.0})
        'cpu 12 %   memory 3.5 / 16.0 GiB   process - of a core, - GiB   disk free - GiB'
    """

    def tell(name: str, pattern: str) -> str:
        value = values.get(f"host/{name}")
        return "-" if value is None else pattern.format(value)

    memory = f"{tell('memory_used_gib', '{:.1f}')} / {tell('memory_total_gib', '{:.1f}')}"
    process = f"{tell('process_cpu_percent', '{:.0f} %')} of a core, {tell('process_memory_gib', '{:.1f}')} GiB"
    return (
        f"cpu {tell('cpu_percent', '{:.0f} %')}   memory {memory} GiB   process {process}   "
        f"disk free {tell('disk_free_gib', '{:.0f}')} GiB"
    )


def _row(facts: Mapping[str, Any], values: Mapping[str, float]) -> tuple[str, ...]:
    def value(name: str) -> float | None:
        return values.get(f"gpu{facts['index']}/{name}")

    def tell(name: str, pattern: str) -> str:
        found = value(name)
        return "-" if found is None else pattern.format(found)

    used, total = value("memory_used_gib"), value("memory_total_gib")
    whole = "-" if used is None else f"{used:.1f} GiB" if total is None else f"{used:.1f} / {total:.1f} GiB"
    use = tell("utilization_percent", "{:.0f} %")
    return (
        f"{facts['index']} {facts.get('name') or ''}".strip(),
        "not measurable" if facts.get("utilization") == "not measurable" else use,
        whole,
        tell("process_memory_gib", "{:.1f} GiB"),
        tell("power_watts", "{:.0f} W"),
        tell("temperature_celsius", "{:.0f} °C"),
        tell("sm_clock_mhz", "{:.0f} MHz"),
        {None: "-", 0.0: "no"}.get(value("throttled_percent"), "yes"),
    )

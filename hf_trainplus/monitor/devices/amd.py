"""AMD devices through ``amdsmi``, when it is installed."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from hf_trainplus.monitor.devices.guard import ValueGuard
from hf_trainplus.monitor.devices.nvml_values import percent_in_range
from hf_trainplus.monitor.devices.reading import Device, DeviceInfo, DeviceReading
from hf_trainplus.monitor.devices.visible import parse_visible_devices

_MIB = 1024.0**2


class AmdUnavailableError(RuntimeError):
    """amdsmi cannot be started on this machine; the text says why."""


class AmdDevice:
    """One AMD device; ``read`` never raises, and a value that amdsmi answers with "N/A" is missing."""

    def __init__(self, info: DeviceInfo, smi: Any, handle: Any, guard: ValueGuard, pid: int) -> None:
        self.info = info
        self._smi = smi
        self._handle = handle
        self._guard = guard
        self._pid = pid

    def read(self) -> DeviceReading:
        """Ask for every value that has not been given up."""
        smi, handle = self._smi, self._handle
        queries: dict[str, Callable[[], float | None]] = {
            "utilization_percent": self._use,
            "memory_used_bytes": lambda: _number(smi.amdsmi_get_gpu_vram_usage(handle)["vram_used"]) * _MIB,
            "memory_total_bytes": lambda: _number(smi.amdsmi_get_gpu_vram_usage(handle)["vram_total"]) * _MIB,
            "process_memory_bytes": self._process_memory,
            "power_watts": self._power,
            "temperature_celsius": self._temperature,
            "sm_clock_mhz": lambda: _number(smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.GFX)["clk"]),
            "memory_clock_mhz": lambda: _number(smi.amdsmi_get_clock_info(handle, smi.AmdSmiClkType.MEM)["clk"]),
            "energy_joules": self._energy,
        }
        found: dict[str, Any] = {name: self._guard.ask(name, query) for name, query in queries.items()}
        return DeviceReading(**found)

    def _use(self) -> float:
        return percent_in_range(_number(self._smi.amdsmi_get_gpu_activity(self._handle)["gfx_activity"]))

    def _power(self) -> float:
        info = self._smi.amdsmi_get_power_info(self._handle)
        # MI300 and later fill the first, earlier cards the second
        given = [info[key] for key in ("current_socket_power", "average_socket_power") if _is_number(info.get(key))]
        return _number(given[0] if given else "N/A")

    def _temperature(self) -> float:
        kinds, current = self._smi.AmdSmiTemperatureType, self._smi.AmdSmiTemperatureMetric.CURRENT
        return _number(self._smi.amdsmi_get_temp_metric(self._handle, kinds.HOTSPOT, current))

    def _energy(self) -> float:
        count = self._smi.amdsmi_get_energy_count(self._handle)
        # the resolution is in microjoules a count
        return _number(count["energy_accumulator"]) * _number(count["counter_resolution"]) / 1e6

    def _process_memory(self) -> float | None:
        listed = self._smi.amdsmi_get_gpu_process_list(self._handle)
        own = [_number(entry["memory_usage"]["vram_mem"]) for entry in listed if entry["pid"] == self._pid]
        return sum(own) if own else None


class AmdSource:
    """The visible AMD devices, in the runtime's own order under its masks.

    amdsmi lists devices by their place on the bus and HIP by its topology, which need not agree: the order is that of
    the HIP indices which amdsmi tells (``amdsmi_get_gpu_enumeration_info``, ROCm 6.4 and later). Where it tells none,
    several devices are left out and a notice says so, unless the masks name each of them by its serial.

    Args:
        smi: the module ``amdsmi`` or a fake of it.
        environment: read for ROCR_VISIBLE_DEVICES, then HIP_VISIBLE_DEVICES or CUDA_VISIBLE_DEVICES on what is left.
        pid: process whose own memory is asked for; the current one by default.

    Raises:
        AmdUnavailableError: amdsmi cannot be started.
    """

    def __init__(self, smi: Any, *, environment: dict[str, str], pid: int | None = None) -> None:
        self._smi = smi
        self._open = True
        self._notices: list[str] = []
        try:
            smi.amdsmi_init()
            handles = list(smi.amdsmi_get_processor_handles())
        except smi.AmdSmiException as error:
            raise AmdUnavailableError(f"amdsmi cannot be started ({error}).") from error
        own = os.getpid() if pid is None else pid
        self._listed = len(handles)
        ordered = self._in_hip_order(handles)
        proof = "single device" if len(handles) == 1 else "HIP index" if ordered is not None else "serial in the mask"
        visible = self._visible(handles if ordered is None else ordered, environment, by_position=ordered is not None)
        self._devices = tuple(self._device(index, handle, own, proof) for index, handle in enumerate(visible))

    @property
    def devices(self) -> tuple[Device, ...]:
        """The visible devices in logical order."""
        return self._devices

    @property
    def listed(self) -> int:
        """How many devices amdsmi lists, visible or not."""
        return self._listed

    def drain_notices(self) -> list[str]:
        """Return the warnings not yet reported."""
        drained = list(self._notices)
        del self._notices[: len(drained)]
        return drained

    def close(self) -> None:
        """Shut amdsmi down; a second call does nothing."""
        if self._open:
            self._open = False
            self._guard("amdsmi").ask("shutdown", self._smi.amdsmi_shut_down)

    def _guard(self, owner: str) -> ValueGuard:
        errors = (self._smi.AmdSmiException, AttributeError, KeyError, TypeError, ValueError)
        lasting = (AttributeError, KeyError, TypeError, ValueError)
        return ValueGuard(owner, self._notices, errors=errors, permanent=lambda error: isinstance(error, lasting))

    def _in_hip_order(self, handles: list[Any]) -> list[Any] | None:
        """Return the handles by their HIP index; None where one of several tells none."""
        if len(handles) < 2:
            return handles
        guard = self._guard("amdsmi")
        known = [guard.ask("HIP index", partial(self._hip_index, handle)) for handle in handles]
        indices = [index for index in known if index is not None]
        if len(set(indices)) < len(handles):
            return None
        return [handle for _, handle in sorted(zip(indices, handles, strict=True), key=lambda pair: pair[0])]

    def _hip_index(self, handle: Any) -> int:
        return int(_number(self._smi.amdsmi_get_gpu_enumeration_info(handle)["hip_id"]))

    def _visible(self, handles: list[Any], environment: dict[str, str], *, by_position: bool) -> list[Any]:
        masks = [environment.get("ROCR_VISIBLE_DEVICES")]
        masks.append(environment.get("HIP_VISIBLE_DEVICES", environment.get("CUDA_VISIBLE_DEVICES")))
        for mask in masks:
            tokens = parse_visible_devices(mask)
            if tokens is None:
                continue
            if not by_position and any(token.isdecimal() for token in tokens):
                break
            handles, by_position = self._pick(handles, tokens), True
        if by_position:
            return handles
        self._notices.append(
            f"{len(handles)} AMD devices are not monitored: this amdsmi does not tell their HIP indices; take the one "
            "of ROCm 6.4 or later, or name devices by serial, e.g. ROCR_VISIBLE_DEVICES=GPU-<asic serial>."
        )
        return []

    def _pick(self, handles: list[Any], tokens: tuple[str, ...]) -> list[Any]:
        picked = []
        for token in tokens:
            if token.isdecimal():
                if int(token) >= len(handles):
                    break
                picked.append(handles[int(token)])
                continue
            serial = token.lower().removeprefix("gpu-")
            named = [handle for handle in handles if self._serial(handle).startswith(serial)]
            if len(named) != 1:
                break
            picked.append(named[0])
        return picked

    def _serial(self, handle: Any) -> str:
        # ROCm's GPU-<serial> is the ASIC's serial without 0x
        info = self._guard("amdsmi").ask("serial", lambda: self._smi.amdsmi_get_gpu_asic_info(handle)["asic_serial"])
        return "" if info is None else str(info).lower().removeprefix("0x")

    def _device(self, index: int, handle: Any, pid: int, proof: str) -> AmdDevice:
        guard = self._guard(f"device {index}")
        name = guard.ask("name", lambda: str(self._smi.amdsmi_get_gpu_asic_info(handle)["market_name"]))
        info = DeviceInfo(index, name, f"GPU-{self._serial(handle)}", "rocm", proof)
        return AmdDevice(info, self._smi, handle, guard, pid)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: Any) -> float:
    if not _is_number(value):
        raise ValueError(f"amdsmi answered {value!r}")
    return float(value)

"""NVIDIA devices: start NVML and tie what it lists to CUDA's logical indices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hf_trainplus.monitor.devices.matching import Match, match_devices
from hf_trainplus.monitor.devices.nvml_device import NvmlDevice
from hf_trainplus.monitor.devices.nvml_inventory import guard_maker, list_devices
from hf_trainplus.monitor.devices.reading import Device, DeviceInfo

_MISMATCH = 18
_VGPU = 2


class NvmlUnavailableError(RuntimeError):
    """NVML cannot be started on this machine; the text says why and what to do."""


class NvmlSource:
    """The visible NVIDIA devices.

    It starts NVML once and shuts it down in ``close``. It touches no CUDA context: identifiers that torch knows are
    passed in.

    Args:
        nvml: the module ``pynvml`` or a fake of it.
        torch_uuids: what torch reports for cuda:0, cuda:1, ...; None when torch is not at hand.
        mask: text of CUDA_VISIBLE_DEVICES, None when unset.
        device_order: text of CUDA_DEVICE_ORDER, None when unset.
        pid: process whose own memory is asked for; the current one by default.

    Raises:
        NvmlUnavailableError: NVML cannot be started (no driver, no library, or the two of different versions).
    """

    def __init__(
        self,
        nvml: Any,
        *,
        torch_uuids: Sequence[str] | None = None,
        mask: str | None = None,
        device_order: str | None = None,
        pid: int | None = None,
    ) -> None:
        try:
            nvml.nvmlInit()
        except nvml.NVMLError as error:
            raise NvmlUnavailableError(_why_unavailable(error)) from error
        self._nvml = nvml
        self._open = True
        self._pid = os.getpid() if pid is None else pid
        self._notices: list[str] = []
        self._make_guard = guard_maker(nvml, self._notices)
        self._inventory = list_devices(nvml, self._make_guard)
        result = match_devices(self._inventory.physical, torch_uuids=torch_uuids, mask=mask, device_order=device_order)
        self._notices.extend(result.notices)
        self._devices = tuple(self._device(match) for match in result.matches)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The visible devices in logical order."""
        return self._devices

    @property
    def driver_version(self) -> str | None:
        """The driver's version, None when it cannot be read."""
        version = self._make_guard("NVML").ask("driver version", self._nvml.nvmlSystemGetDriverVersion)
        return None if version is None else str(version)

    def zeros_are_suspect(self, index: int) -> bool:
        """Tell whether a use of 0 means nothing on device ``index``: a MIG slice or a vGPU."""
        device = next(device for device in self._devices if device.info.index == index)
        if device.info.kind == "mig":
            return True
        handle, _ = self._inventory.handles[str(device.info.uuid)]
        mode = self._make_guard(f"cuda:{index}").ask(
            "virtualization mode", lambda: self._nvml.nvmlDeviceGetVirtualizationMode(handle)
        )
        return bool(mode == _VGPU)

    def drain_notices(self) -> list[str]:
        """Return the warnings not yet reported."""
        drained = list(self._notices)
        del self._notices[: len(drained)]
        return drained

    def close(self) -> None:
        """Shut NVML down; a second call does nothing."""
        if self._open:
            self._open = False
            self._make_guard("NVML").ask("shutdown", self._nvml.nvmlShutdown)

    def _device(self, match: Match) -> NvmlDevice:
        handle, chip = self._inventory.handles[match.uuid]
        names = {device.uuid: device.name for device in self._inventory.physical}
        names |= {mig.uuid: device.name for device in self._inventory.physical for mig in device.slices}
        info = DeviceInfo(
            match.index, names[match.uuid], match.uuid, "cuda" if handle is chip else "mig", match.matched_by
        )
        guard = self._make_guard(f"cuda:{match.index} ({match.uuid})")
        return NvmlDevice(info, nvml=self._nvml, handle=handle, chip=chip, guard=guard, pid=self._pid)


def _why_unavailable(error: Exception) -> str:
    if getattr(error, "value", None) == _MISMATCH:
        return f"the NVIDIA driver and its library have different versions ({error}); reload the driver or reboot."
    return f"NVML cannot be started ({error})."

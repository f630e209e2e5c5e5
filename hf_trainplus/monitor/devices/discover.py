"""Find out whose devices this machine has, and say once what stands in the way."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType

from hf_trainplus.monitor.devices.amd import AmdSource, AmdUnavailableError
from hf_trainplus.monitor.devices.mps import MpsSource
from hf_trainplus.monitor.devices.nvml import NvmlSource, NvmlUnavailableError
from hf_trainplus.monitor.devices.reading import Device, DeviceSource
from hf_trainplus.monitor.devices.trust import UseTrust


@dataclass
class OpenDevices:
    """The devices found, a ``UseTrust`` for each logical index, and what there is to warn about.

    Without any device it is empty, and everything that reads it goes on: a machine without a GPU is no fault.
    """

    source: DeviceSource | None = None
    trust: dict[int, UseTrust] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)

    limit: int | None = None

    @property
    def devices(self) -> tuple[Device, ...]:
        """The visible devices in logical order."""
        devices = () if self.source is None else self.source.devices
        return tuple(device for device in devices if self.limit is None or device.info.index < self.limit)

    def keep_first(self, count: int) -> None:
        """Leave out logical indices from ``count`` on: devices that the ``count`` local processes do not drive.

        Where each process sees fewer devices than there are processes, the others' cannot be read from this one, and
        one notice says so.
        """
        self.limit = count
        if self.source is not None and len(self.source.devices) < count:
            self.notices.append(
                f"{len(self.source.devices)} of {count} devices are monitored: each process sees only its own; start "
                "them without a CUDA_VISIBLE_DEVICES of their own to have all."
            )

    def drain_notices(self) -> list[str]:
        """Return the warnings not yet reported."""
        drained = list(self.notices)
        del self.notices[: len(drained)]
        return drained + ([] if self.source is None else self.source.drain_notices())

    def close(self) -> None:
        """Let go of the vendor's library."""
        if self.source is not None:
            self.source.close()


def open_devices(
    *,
    torch_uuids: Sequence[str] | None = None,
    torch_mps: object | None = None,
    environment: Mapping[str, str] | None = None,
    pid: int | None = None,
    proc_version: str = "/proc/version",
) -> OpenDevices:
    """Open the devices of the first vendor whose library answers: NVIDIA, AMD, Apple.

    It starts no CUDA context and imports no torch: what torch knows is passed in. It never raises for a machine that
    cannot be read; it says why in ``notices``, one sentence.

    Args:
        torch_uuids: UUIDs of cuda:0, cuda:1, ... as torch reports them.
        torch_mps: the module ``torch.mps`` where MPS is available.
        environment: where the visibility masks are read; ``os.environ`` when None. Read are CUDA_VISIBLE_DEVICES,
            CUDA_DEVICE_ORDER, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES.
        pid: process whose own device memory is wanted; the current one when None.
        proc_version: file that tells whether this is WSL.

    Returns:
        The open devices; close them when done.

    Example:
        >>> open_devices(environment={"CUDA_VISIBLE_DEVICES": ""}).devices
        ()
    """
    seen = dict(os.environ if environment is None else environment)
    found = OpenDevices()
    _open_nvidia(found, torch_uuids, seen, pid, _is_wsl(proc_version))
    if not found.devices and (amd := _import("amdsmi", "amdsmi_init")) is not None:
        _open_amd(found, amd, seen, pid)
    if not found.devices and torch_mps is not None:
        found.source = MpsSource(torch_mps)
        found.trust = {0: UseTrust(suspect=True)}
    return found


def _open_nvidia(
    found: OpenDevices, torch_uuids: Sequence[str] | None, environment: dict[str, str], pid: int | None, wsl: bool
) -> None:
    nvml = _import("pynvml", "nvmlInit")
    if nvml is None:
        if torch_uuids:
            found.notices.append("CUDA devices are not monitored: pynvml is missing; pip install nvidia-ml-py.")
        return
    mask, order = environment.get("CUDA_VISIBLE_DEVICES"), environment.get("CUDA_DEVICE_ORDER")
    try:
        source = NvmlSource(nvml, torch_uuids=torch_uuids, mask=mask, device_order=order, pid=pid)
    except NvmlUnavailableError as reason:
        # a machine without a driver is the ordinary case on a laptop or in CI: nothing to warn about there
        if torch_uuids or "different versions" in str(reason):
            found.notices.append(f"CUDA devices are not monitored: {reason}")
        return
    found.source = source
    for device in source.devices:
        index = device.info.index
        found.trust[index] = UseTrust(suspect=wsl or source.zeros_are_suspect(index))


def _open_amd(found: OpenDevices, smi: ModuleType, environment: dict[str, str], pid: int | None) -> None:
    try:
        source = AmdSource(smi, environment=environment, pid=pid)
    except AmdUnavailableError as reason:
        found.notices.append(f"AMD devices are not monitored: {reason}")
        return
    found.close()
    if source.listed:
        # torch's devices are these: that they have no NVML is no fault
        found.notices.clear()
    found.source = source
    found.trust = {device.info.index: UseTrust(suspect=False) for device in source.devices}


def _import(name: str, function: str) -> ModuleType | None:
    """Import a vendor's module; None without it, also where a folder of its name is taken for a module."""
    try:
        module = import_module(name)
        return module if hasattr(module, function) else None
    except (ImportError, OSError):
        # amdsmi raises OSError or KeyError where the ROCm library is not installed
        return None
    except KeyError:
        return None


def _is_wsl(proc_version: str) -> bool:
    try:
        return "microsoft" in Path(proc_version).read_text(encoding="utf-8", errors="replace").lower()
    except OSError:
        return False

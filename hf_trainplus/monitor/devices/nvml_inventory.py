"""What NVML lists: GPUs and MIG slices, each behind its own guard, so that a broken one hides no other."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from hf_trainplus.monitor.devices.guard import ValueGuard
from hf_trainplus.monitor.devices.matching import MigSlice, PhysicalDevice
from hf_trainplus.monitor.devices.nvml_values import mismatch_errors

# errors that say "this device has no such value", as opposed to "not now"
_PERMANENT = ("NotSupported", "NoPermission", "ArgumentVersionMismatch", "VgpuEccNotSupported")


@dataclass(frozen=True)
class Inventory:
    """The driver's devices in its own order, and the handles to ask: UUID -> (device or slice, whole chip)."""

    physical: tuple[PhysicalDevice, ...]
    handles: dict[str, tuple[Any, Any]] = field(default_factory=dict)


class MakeGuard(Protocol):
    """Makes a guard that knows NVML's errors."""

    def __call__(self, owner: str, attempts: int = 3) -> ValueGuard:
        """Return the guard of one owner of values."""


def guard_maker(nvml: Any, notices: list[str]) -> MakeGuard:
    """Return a function owner -> guard that knows NVML's errors.

    Args:
        nvml: the module ``pynvml`` or a fake of it.
        notices: list that the guards append to.
    """
    named = [getattr(nvml, f"NVMLError_{name}", None) for name in _PERMANENT]
    # a pynvml of another age may lack a function, or the driver one of pynvml's; that does not heal
    other_age = (AttributeError, TypeError, ctypes.ArgumentError, *mismatch_errors(nvml))
    permanent = (*(error for error in named if error is not None), *other_age)

    def make(owner: str, attempts: int = 3) -> ValueGuard:
        return ValueGuard(
            owner,
            notices,
            errors=(nvml.NVMLError, *other_age, ValueError, OSError),
            permanent=lambda error: isinstance(error, permanent),
            attempts=attempts,
        )

    return make


def list_devices(nvml: Any, make_guard: MakeGuard) -> Inventory:
    """List GPUs and MIG slices.

    It ties nothing to CUDA's indices and starts no library.

    Args:
        nvml: the started module ``pynvml`` or a fake of it.
        make_guard: as ``guard_maker`` returns it.

    Returns:
        The inventory; a GPU whose handle or UUID cannot be read keeps its place with ``uuid`` None.
    """
    # asked for once: without it there is nothing to ask again
    count = make_guard("NVML", attempts=1).ask("device count", nvml.nvmlDeviceGetCount) or 0
    handles: dict[str, tuple[Any, Any]] = {}
    physical = [_one(nvml, position, make_guard(f"device {position} of NVML"), handles) for position in range(count)]
    return Inventory(tuple(physical), handles)


def _one(nvml: Any, position: int, guard: ValueGuard, handles: dict[str, tuple[Any, Any]]) -> PhysicalDevice:
    handle = guard.ask("handle", lambda: nvml.nvmlDeviceGetHandleByIndex(position))
    uuid = None if handle is None else guard.ask("UUID", lambda: nvml.nvmlDeviceGetUUID(handle))
    if handle is None or uuid is None:
        return PhysicalDevice(None)
    handles[uuid] = (handle, handle)
    name = guard.ask("name", lambda: nvml.nvmlDeviceGetName(handle))
    mode = guard.ask("MIG mode", lambda: nvml.nvmlDeviceGetMigMode(handle)[0])
    if mode != 1:
        return PhysicalDevice(uuid, name)
    return PhysicalDevice(uuid, name, mig_enabled=True, slices=_slices(nvml, handle, guard, handles))


def _slices(nvml: Any, chip: Any, guard: ValueGuard, handles: dict[str, tuple[Any, Any]]) -> tuple[MigSlice, ...]:
    found = []
    for position in range(guard.ask("MIG count", lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(chip)) or 0):
        try:
            mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(chip, position)
        except nvml.NVMLError:
            continue  # an empty slot answers NotFound, a driver at odds something else
        uuid = guard.ask("MIG UUID", partial(nvml.nvmlDeviceGetUUID, mig))
        if uuid is None:
            continue
        handles[uuid] = (mig, chip)
        gpu_instance = guard.ask("GPU instance", partial(nvml.nvmlDeviceGetGpuInstanceId, mig))
        compute_instance = guard.ask("compute instance", partial(nvml.nvmlDeviceGetComputeInstanceId, mig))
        found.append(MigSlice(uuid, gpu_instance, compute_instance))
    return tuple(found)

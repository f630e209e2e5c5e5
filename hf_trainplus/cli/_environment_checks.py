"""What may stand in a launch's way on this machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil
import torch
import yaml

from hf_trainplus.callbacks._torch_devices import torch_cuda_uuids
from hf_trainplus.monitor.devices import GIB, open_devices

Status = Literal["ok", "warning", "missing"]

_PACKAGES = ("hf-trainplus", "torch", "transformers", "accelerate", "datasets", "evaluate", "nvidia-ml-py")
_OPTIONAL = ("deepspeed", "peft", "trl", "bitsandbytes")


@dataclass(frozen=True)
class Check:
    """One look at the environment: what was seen, and the next thing to do when something is in the way.

    Example:
        >>> Check("disk", "ok", "120 GiB free").to_json()["status"]
        'ok'
    """

    name: str
    status: Status
    message: str
    next_step: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


def check_versions() -> list[Check]:
    """Tell Python and the packages; a required one that is absent is missing."""
    found = [Check("python", "ok", f"{platform.python_version()} on {platform.platform(terse=True)}")]
    for package in _PACKAGES:
        version = _version(package)
        if version is None:
            found.append(Check(package, "missing", "not installed", f"pip install {package}"))
        else:
            found.append(Check(package, "ok", version))
    optional = {package: _version(package) for package in _OPTIONAL}
    told = ", ".join(f"{package} {version}" for package, version in optional.items() if version is not None)
    found.append(Check("optional", "ok", told or "none of " + ", ".join(_OPTIONAL)))
    return found


def check_devices() -> list[Check]:
    """Tell the devices, how each is tied to its index, and what could not be read."""
    opened = open_devices(torch_uuids=torch_cuda_uuids())
    try:
        found = [
            Check(
                f"device {one.info.index}", "ok", f"{one.info.name}, {one.info.uuid}, matched by {one.info.matched_by}"
            )
            for one in opened.devices
        ]
        found += [Check("device", "warning", notice) for notice in opened.drain_notices()]
    finally:
        opened.close()
    build = f"torch is built for {_build()}"
    if not found and torch.cuda.is_available():
        return [
            Check("devices", "warning", f"torch sees {torch.cuda.device_count()} and none can be monitored; {build}")
        ]
    return found or [Check("devices", "ok", f"none: training runs on the CPU; {build}")]


def check_accelerate(path: Path | None = None) -> Check:
    """Tell what ``accelerate launch`` would start; ``path`` is Accelerate's default file when None."""
    if path is None:
        from accelerate.commands.config.config_args import default_yaml_config_file

        path = Path(default_yaml_config_file)
    if not path.is_file():
        return Check("accelerate config", "ok", "none: accelerate launch uses its defaults", "")
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        processes = int(config.get("num_processes") or 0)
        machines = max(int(config.get("num_machines") or 1), 1)
    except (OSError, UnicodeDecodeError, yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        return Check("accelerate config", "warning", f"{path} cannot be read ({error})", "accelerate config")
    number = f"{processes} processes" if processes else "num_processes not set"
    told = f"{config.get('distributed_type', 'NO')}, {number}, {config.get('mixed_precision', 'no')}"
    devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    per_machine = processes // machines
    if devices and not config.get("use_cpu") and per_machine > devices:
        return Check(
            "accelerate config",
            "warning",
            f"{told}, and this machine has {devices} devices",
            f"accelerate launch --num_processes {devices}",
        )
    return Check("accelerate config", "ok", f"{told} ({path})")


def check_disk(path: Path, least_gib: float = 20.0) -> Check:
    """Tell the free space where a run would write."""
    free = shutil.disk_usage(path).free / GIB
    if free < least_gib:
        advice = "free some, set save_total_limit, or choose another output_dir"
        return Check("disk", "warning", f"{free:.1f} GiB free at {path}: a few checkpoints fill it", advice)
    return Check("disk", "ok", f"{free:.0f} GiB free at {path}")


def check_shared_memory(path: Path = Path("/dev/shm"), least_gib: float = 1.0) -> Check:  # noqa: S108 - its name
    """Tell the shared memory that loader workers and NCCL need; containers often have 64 MiB."""
    if not path.is_dir():
        return Check("shared memory", "ok", "this system has no /dev/shm")
    total = shutil.disk_usage(path).total / GIB
    if total < least_gib:
        return Check(
            "shared memory",
            "warning",
            f"{total:.2f} GiB: loader workers may die with a bus error",
            "docker run --shm-size=8g (or --ipc=host)",
        )
    return Check("shared memory", "ok", f"{total:.1f} GiB")


def check_backends() -> Check:
    """Tell which process group backends torch has, and whether the one for these devices is among them."""
    if not torch.distributed.is_available():
        return Check("backends", "missing", "this torch has no torch.distributed", "install another build of torch")
    names = {"gloo": torch.distributed.is_gloo_available(), "nccl": torch.distributed.is_nccl_available()}
    told = ", ".join(name for name, there in names.items() if there) or "none"
    if torch.cuda.is_available() and torch.version.hip is None and not names["nccl"]:
        return Check("backends", "warning", f"{told}; CUDA devices need nccl", "install a CUDA build of torch")
    return Check("backends", "ok", told)


def check_limits(least_files: int = 4096) -> list[Check]:
    """Tell processor, memory and open files."""
    memory = psutil.virtual_memory()
    found = [
        Check("cpu", "ok", f"{os.cpu_count()} cores, {len(_affinity())} usable"),
        Check("memory", "ok", f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB available"),
    ]
    files = _open_files()
    if files is not None and files < least_files:
        found.append(
            Check("open files", "warning", f"at most {files}: many workers or shards need more", "ulimit -n 65536")
        )
    elif files is not None:
        found.append(Check("open files", "ok", f"at most {files}"))
    return found


def check_environment(path: Path = Path(".")) -> list[Check]:
    """Run all checks.

    Args:
        path: where a run would write.
    """
    groups: list[Callable[[], Check | list[Check]]] = [
        check_versions,
        check_devices,
        check_accelerate,
        lambda: check_disk(path),
        check_shared_memory,
        check_backends,
        check_limits,
    ]
    found: list[Check] = []
    for group in groups:
        checks = group()
        found += checks if isinstance(checks, list) else [checks]
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _build() -> str:
    if torch.version.hip is not None:
        return f"ROCm {torch.version.hip}"
    return "the CPU" if torch.version.cuda is None else f"CUDA {torch.version.cuda}"


def _affinity() -> set[int] | range:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def _open_files() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else int(limit)

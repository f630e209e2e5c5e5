"""A stand-in for the module ``pynvml`` in which every fault can be made exactly.

The error classes are pynvml's own, so that the code under test meets the real hierarchy.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pynvml

NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
UNKNOWN = pynvml.NVML_ERROR_UNKNOWN
LOST = pynvml.NVML_ERROR_GPU_IS_LOST


@dataclass
class FakeGpu:
    """One GPU or MIG slice; ``faults`` maps a function's name to an NVML error code."""

    uuid: str = "GPU-00000000-0000-0000-0000-000000000000"
    name: str = "NVIDIA H200"
    use: int = 40
    used: int = 2 * 1024**3
    total: int = 140 * 1024**3
    milliwatts: int = 300_000
    millijoules: int = 5_000_000
    celsius: int = 55
    throttle: int = 0
    processes: list = field(default_factory=list)  # (pid, bytes or None)
    slices: list = field(default_factory=list)
    mig: bool = False
    virtualization: int = 0
    faults: dict = field(default_factory=dict)
    calls: dict = field(default_factory=dict)

    def lose(self):
        """Fall off the bus: every later call on this device fails."""
        self.faults = {"*": LOST}


class FakeNvml:
    """The part of pynvml that the monitor uses, over a list of ``FakeGpu``."""

    NVML_TEMPERATURE_GPU = pynvml.NVML_TEMPERATURE_GPU
    NVML_CLOCK_SM, NVML_CLOCK_MEM = pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM
    NVML_PCIE_UTIL_TX_BYTES, NVML_PCIE_UTIL_RX_BYTES = pynvml.NVML_PCIE_UTIL_TX_BYTES, pynvml.NVML_PCIE_UTIL_RX_BYTES
    NVML_MEMORY_ERROR_TYPE_UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    NVML_VOLATILE_ECC = pynvml.NVML_VOLATILE_ECC

    def __init__(self, gpus, init_error=None):
        self.gpus = gpus
        self.init_error = init_error
        self.started = 0

    def __getattr__(self, name):
        if name.startswith(("NVMLError", "NVMLLibraryMismatch")):
            return getattr(pynvml, name)
        raise AttributeError(name)

    def nvmlInit(self):
        if self.init_error is not None:
            raise pynvml.NVMLError(self.init_error)
        self.started += 1

    def nvmlShutdown(self):
        self.started -= 1

    def nvmlSystemGetDriverVersion(self):
        return "570.86.15"

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return self._called(self.gpus[index], "nvmlDeviceGetHandleByIndex", self.gpus[index])

    def nvmlDeviceGetUUID(self, gpu):
        return self._called(gpu, "nvmlDeviceGetUUID", gpu.uuid)

    def nvmlDeviceGetName(self, gpu):
        return self._called(gpu, "nvmlDeviceGetName", gpu.name)

    def nvmlDeviceGetMigMode(self, gpu):
        return self._called(gpu, "nvmlDeviceGetMigMode", (int(gpu.mig), int(gpu.mig)))

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu):
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu, index):
        if index >= len(gpu.slices):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
        return gpu.slices[index]

    def nvmlDeviceGetGpuInstanceId(self, gpu):
        return self._called(gpu, "nvmlDeviceGetGpuInstanceId", int(gpu.uuid[-1], 16))

    def nvmlDeviceGetComputeInstanceId(self, gpu):
        return self._called(gpu, "nvmlDeviceGetComputeInstanceId", 0)

    def nvmlDeviceGetVirtualizationMode(self, gpu):
        return self._called(gpu, "nvmlDeviceGetVirtualizationMode", gpu.virtualization)

    def nvmlDeviceGetUtilizationRates(self, gpu):
        return self._called(gpu, "nvmlDeviceGetUtilizationRates", SimpleNamespace(gpu=gpu.use, memory=1))

    def nvmlDeviceGetMemoryInfo(self, gpu):
        return self._called(gpu, "nvmlDeviceGetMemoryInfo", SimpleNamespace(used=gpu.used, total=gpu.total))

    def nvmlDeviceGetPowerUsage(self, gpu):
        return self._called(gpu, "nvmlDeviceGetPowerUsage", gpu.milliwatts)

    def nvmlDeviceGetEnforcedPowerLimit(self, gpu):
        return self._called(gpu, "nvmlDeviceGetEnforcedPowerLimit", 700_000)

    def nvmlDeviceGetTotalEnergyConsumption(self, gpu):
        return self._called(gpu, "nvmlDeviceGetTotalEnergyConsumption", gpu.millijoules)

    def nvmlDeviceGetTemperature(self, gpu, sensor):
        return self._called(gpu, "nvmlDeviceGetTemperature", gpu.celsius)

    def nvmlDeviceGetClockInfo(self, gpu, kind):
        return self._called(gpu, "nvmlDeviceGetClockInfo", 1980 if kind == self.NVML_CLOCK_SM else 3201)

    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu):
        return self._called(gpu, "nvmlDeviceGetCurrentClocksEventReasons", gpu.throttle)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, gpu):
        return self._called(gpu, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu.throttle)

    def nvmlDeviceGetPcieThroughput(self, gpu, counter):
        return self._called(
            gpu, "nvmlDeviceGetPcieThroughput", 1000 if counter == self.NVML_PCIE_UTIL_TX_BYTES else 3000
        )

    def nvmlDeviceGetTotalEccErrors(self, gpu, kind, counter):
        return self._called(gpu, "nvmlDeviceGetTotalEccErrors", 0)

    def nvmlDeviceGetFieldValues(self, gpu, fields):
        (field_id, _scope), *_ = fields
        value = SimpleNamespace(ullVal=7 if field_id == 138 else 9)
        return self._called(gpu, "nvmlDeviceGetFieldValues", [SimpleNamespace(nvmlReturn=0, value=value)])

    def nvmlDeviceGetComputeRunningProcesses(self, gpu):
        entries = [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in gpu.processes]
        try:
            return self._called(gpu, "nvmlDeviceGetComputeRunningProcesses", entries)
        except pynvml.NVMLError_FunctionNotFound as error:
            # as pynvml's own wrapper does it, and its class is no NVMLError
            raise pynvml.NVMLLibraryMismatchError("Unversioned function called") from error

    def nvmlDeviceGetComputeRunningProcesses_v2(self, gpu):
        entries = [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in gpu.processes]
        return self._called(gpu, "nvmlDeviceGetComputeRunningProcesses_v2", entries)

    @staticmethod
    def _called(gpu, name, answer):
        gpu.calls[name] = gpu.calls.get(name, 0) + 1
        code = gpu.faults.get(name, gpu.faults.get("*"))
        if code is not None:
            raise pynvml.NVMLError(code)
        return answer

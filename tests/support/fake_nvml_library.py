"""A stand-in for the library ``libnvidia-ml.so.1`` beneath the real ``pynvml``: its C functions, in Python.

Where ``FakeNvml`` stands in for pynvml's functions, this one lets pynvml itself build the arguments and read the
answers, so that a wrong name, argument or structure shows.
"""

import ctypes

import pynvml

# nvml.h: what each function writes through its last pointer, for the one device
_NUMBERS = {
    "nvmlDeviceGetPowerUsage": 300_000,
    "nvmlDeviceGetEnforcedPowerLimit": 700_000,
    "nvmlDeviceGetTotalEnergyConsumption": 5_000_000,
    "nvmlDeviceGetTemperature": 55,
    "nvmlDeviceGetCurrentClocksEventReasons": 0x20 | 0x1,
    "nvmlDeviceGetTotalEccErrors": 3,
    "nvmlDeviceGetVirtualizationMode": 0,
}
_CLOCKS = {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201}
_PCIE = {pynvml.NVML_PCIE_UTIL_TX_BYTES: 1000, pynvml.NVML_PCIE_UTIL_RX_BYTES: 3000}
_LINKS = {pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: 7, pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: 9}


def _into(pointer):
    """Return what a ``byref`` points to."""
    return pointer._obj


class FakeLibrary:
    """One H200 with the given compute processes; functions named in ``missing`` are not in the library.
    ``started`` counts how often NVML was started and not shut down.
    """

    def __init__(self, processes=(), missing=()):
        self.processes, self.missing, self.started = list(processes), frozenset(missing), 0

    def __getattr__(self, name):
        function = getattr(type(self), f"_{name}", None)
        if name in self.missing or (function is None and name not in _NUMBERS):
            raise AttributeError(name)

        def called(*arguments):
            if function is not None:
                return function(self, *arguments) or pynvml.NVML_SUCCESS
            _into(arguments[-1]).value = _NUMBERS[name]
            return pynvml.NVML_SUCCESS

        return called

    def _nvmlInitWithFlags(self, flags):
        self.started += 1

    def _nvmlShutdown(self):
        self.started -= 1

    def _nvmlSystemGetDriverVersion(self, buffer, length):
        buffer.value = b"570.86.15"

    def _nvmlDeviceGetCount_v2(self, count):
        _into(count).value = 1

    def _nvmlDeviceGetHandleByIndex_v2(self, index, device):
        if index.value != 0:
            return pynvml.NVML_ERROR_INVALID_ARGUMENT
        return self._point(device)

    @staticmethod
    def _point(device):
        ctypes.memmove(device, ctypes.byref(ctypes.c_void_p(0x1000)), ctypes.sizeof(ctypes.c_void_p))

    def _nvmlDeviceGetUUID(self, device, buffer, length):
        assert ctypes.cast(device, ctypes.c_void_p).value == 0x1000
        buffer.value = b"GPU-12345678-aaaa"

    def _nvmlDeviceGetName(self, device, buffer, length):
        buffer.value = b"NVIDIA H200"

    def _nvmlDeviceGetMigMode(self, device, current, pending):
        return pynvml.NVML_ERROR_NOT_SUPPORTED

    def _nvmlDeviceGetUtilizationRates(self, device, rates):
        _into(rates).gpu, _into(rates).memory = 41, 12

    def _nvmlDeviceGetMemoryInfo(self, device, memory):
        _into(memory).used, _into(memory).total, _into(memory).free = 2 * 1024**3, 140 * 1024**3, 138 * 1024**3

    def _nvmlDeviceGetClockInfo(self, device, kind, mhz):
        _into(mhz).value = _CLOCKS[kind.value]

    def _nvmlDeviceGetPcieThroughput(self, device, counter, rate):
        _into(rate).value = _PCIE[counter.value]

    def _nvmlDeviceGetFieldValues(self, device, count, values):
        for value in _into(values)[: count.value]:
            assert value.scopeId == 0xFFFFFFFF  # all links together
            value.nvmlReturn, value.value.ullVal = pynvml.NVML_SUCCESS, _LINKS[value.fieldId]

    def _nvmlDeviceGetComputeRunningProcesses_v3(self, device, count, entries):
        return self._list(count, entries)

    def _nvmlDeviceGetComputeRunningProcesses_v2(self, device, count, entries):
        return self._list(count, entries)

    def _list(self, count, entries):
        if self.processes and entries is None:
            _into(count).value = len(self.processes)
            return pynvml.NVML_ERROR_INSUFFICIENT_SIZE
        _into(count).value = len(self.processes)
        for entry, (pid, used) in zip(entries or (), self.processes, strict=False):
            entry.pid, entry.usedGpuMemory = pid, used
        return pynvml.NVML_SUCCESS

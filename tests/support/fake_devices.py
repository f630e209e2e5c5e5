"""Devices that say what a test wants them to, without a driver."""

from hf_trainplus.monitor.devices import DeviceInfo, DeviceReading, OpenDevices, UseTrust


class FakeDevice:
    """Answers with ``reading``, or with what ``reading()`` returns."""

    def __init__(self, index=0, reading=None, **values):
        self.info = DeviceInfo(index, "Fake GPU", f"GPU-{index}", "cuda", "torch uuid")
        self.reading = reading or DeviceReading(**values)
        self.reads = 0

    def read(self):
        self.reads += 1
        return self.reading() if callable(self.reading) else self.reading


class FakeSource:
    """A source of fake devices; it remembers whether it was closed."""

    def __init__(self, devices):
        self.devices, self.closed, self.notices = tuple(devices), False, []

    def drain_notices(self):
        drained, self.notices = self.notices, []
        return drained

    def close(self):
        self.closed = True


def opened(*devices, suspect=False, proof=10):
    trust = {device.info.index: UseTrust(suspect=suspect, proof=proof) for device in devices}
    return OpenDevices(FakeSource(devices), trust)

"""Devices: which they are, and what they say, each value guarded alone."""

from hf_trainplus.monitor.devices.discover import OpenDevices, open_devices
from hf_trainplus.monitor.devices.host import Host, HostReading
from hf_trainplus.monitor.devices.reading import GIB, Device, DeviceInfo, DeviceReading, DeviceSource, UseStatus
from hf_trainplus.monitor.devices.trust import UseTrust

__all__ = [
    "GIB",
    "Device",
    "DeviceInfo",
    "DeviceReading",
    "DeviceSource",
    "Host",
    "HostReading",
    "OpenDevices",
    "UseStatus",
    "UseTrust",
    "open_devices",
]

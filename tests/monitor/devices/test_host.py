import os
import time
from collections import namedtuple
from types import SimpleNamespace

import psutil
import pytest

from hf_trainplus.monitor.devices.host import Host

Times = namedtuple("Times", "user nice system idle iowait guest")


class FakePsutil:
    """A machine whose counters are set by hand."""

    Error, NoSuchProcess = psutil.Error, psutil.NoSuchProcess

    def __init__(self):
        self.times = Times(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self.own = SimpleNamespace(user=0.0, system=0.0)
        self.disk = SimpleNamespace(read_bytes=0, write_bytes=0)
        self.network = SimpleNamespace(bytes_recv=0, bytes_sent=0)
        self.rss = 100

    def Process(self, pid):
        return SimpleNamespace(cpu_times=lambda: self.own, memory_info=lambda: SimpleNamespace(rss=self.rss))

    def cpu_times(self):
        return self.times

    def virtual_memory(self):
        return SimpleNamespace(total=1000, available=400)

    def disk_usage(self, path):
        return SimpleNamespace(free=77)

    def disk_io_counters(self):
        return self.disk

    def net_io_counters(self):
        return self.network


def test_rates_are_differences_over_the_passed_time():
    fake, now = FakePsutil(), [0.0]
    host = Host(fake, clock=lambda: now[0])
    first = host.read()
    assert first.cpu_percent is None
    assert first.disk_read_bytes_per_second is None
    now[0] = 2.0
    # four cores for two seconds: 8 s, of which 5 idle and 1 waiting for a disk; guest is inside user
    fake.times = Times(1.5, 0.0, 0.5, 5.0, 1.0, 1.0)
    fake.own = SimpleNamespace(user=2.5, system=0.5)
    fake.disk = SimpleNamespace(read_bytes=600, write_bytes=40)
    fake.network = SimpleNamespace(bytes_recv=10, bytes_sent=30)
    second = host.read()
    assert second.cpu_percent == pytest.approx(25.0)
    assert second.process_cpu_percent == pytest.approx(150.0)
    assert (second.disk_read_bytes_per_second, second.disk_write_bytes_per_second) == (300.0, 20.0)
    assert (second.network_receive_bytes_per_second, second.network_send_bytes_per_second) == (5.0, 15.0)
    assert (second.memory_used_bytes, second.memory_total_bytes, second.process_memory_bytes) == (600.0, 1000.0, 100.0)
    assert second.disk_free_bytes == 77.0


def test_a_container_without_disk_counters_misses_them_and_nothing_else():
    fake = FakePsutil()
    fake.disk_io_counters = lambda: None
    host = Host(fake, clock=iter([0.0, 1.0]).__next__)
    host.read()
    reading = host.read()
    assert reading.disk_read_bytes_per_second is None
    assert reading.network_send_bytes_per_second == 0.0


def test_a_counter_that_goes_back_is_missing_and_never_negative():
    fake = FakePsutil()
    fake.network = SimpleNamespace(bytes_recv=500, bytes_sent=500)
    fake.times = Times(1.0, 0.0, 0.0, 9.0, 5.0, 0.0)
    host = Host(fake, clock=iter([0.0, 1.0, 2.0]).__next__)
    host.read()
    fake.network = SimpleNamespace(bytes_recv=20, bytes_sent=600)  # an interface is gone
    fake.times = Times(9.0, 0.0, 0.0, 9.0, 0.0, 0.0)  # the kernel's count of waiting for disks is no clock
    reading = host.read()
    assert reading.network_receive_bytes_per_second is None
    assert reading.network_send_bytes_per_second == 100.0
    assert reading.cpu_percent is None
    fake.network = SimpleNamespace(bytes_recv=50, bytes_sent=600)
    assert host.read().network_receive_bytes_per_second == 30.0


def test_an_idle_machine_is_never_used_less_than_not_at_all():
    fake = FakePsutil()
    fake.times = Times(1.0, 0.0, 0.0, 9.0, 0.0, 0.0)
    host = Host(fake, clock=iter([0.0, 1.0]).__next__)
    host.read()
    fake.times = Times(0.99, 0.0, 0.0, 10.0, 0.0, 0.0)  # rounded apart
    assert host.read().cpu_percent == 0.0


def test_a_failing_value_is_missing_and_warned_about_once():
    fake = FakePsutil()

    def denied():
        raise psutil.AccessDenied(1)

    fake.virtual_memory = denied
    host = Host(fake)
    assert [host.read().memory_used_bytes for _ in range(9)] == [None] * 9
    assert len(host.drain_notices()) == 1


def test_a_process_that_has_ended_goes_missing():
    fake = FakePsutil()
    host = Host(fake, pid=4)

    def gone():
        raise psutil.NoSuchProcess(4)

    host._process.memory_info = gone
    assert host.read().process_memory_bytes is None


def test_an_unknown_pid_is_refused():
    with pytest.raises(ValueError, match="no such process"):
        Host(pid=2**22 + 1)


def test_the_real_machine():
    host = Host(pid=os.getpid())
    host.read()
    until = time.process_time() + 0.1  # the system counts in ticks of 10 ms
    while time.process_time() < until:
        pass
    numbers = host.read().numbers()
    assert 0.01 < numbers["process_memory_gib"] < numbers["memory_total_gib"]
    assert numbers["process_cpu_percent"] > 1
    assert 0 <= numbers["cpu_percent"] <= 100

"""`trainplus monitor`: what the devices and the machine do now."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Annotated

import psutil
import typer
from rich.console import Console, Group
from rich.live import Live

from hf_trainplus.cli._device_table import live_view
from hf_trainplus.monitor.devices import Host, OpenDevices, open_devices
from hf_trainplus.monitor.sampler import Sampler, check_interval, device_facts


def register(app: typer.Typer) -> None:
    """Add the command to the main one."""
    app.command(name="monitor", help=_HELP)(monitor)


_HELP = """Show devices, processor, memory, disk and network live, or a JSON line a sample.

Without a terminal one view follows the other. Without --pid the visibility masks of this shell count; with it those
of the running job, whose own memory and processor time are shown. Missing values are "-" (JSON: absent), never 0.
Ctrl-C ends it.

Example: trainplus monitor --pid 12345 --interval 2 --json > devices.jsonl
"""


def monitor(
    interval: Annotated[float, typer.Option(help="Seconds between samples, above 0 and at most a day.")] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON line a sample instead of a table.")] = False,
    pid: Annotated[int | None, typer.Option(help="A running job: its masks, its memory, until it ends.")] = None,
    count: Annotated[int | None, typer.Option(help="Samples to take; without it until Ctrl-C.")] = None,
) -> None:
    """Sample until told to stop; exit code 2 for wrong use."""
    if count is not None and count < 1:
        raise typer.BadParameter(f"count={count}; allowed is 1 or more.")
    try:
        check_interval(interval)
        opened = open_devices(environment=_environment(pid), pid=pid)
        host = Host(pid=pid)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    sampler = Sampler(opened, host, interval=interval, training=False)
    try:
        samples = take_samples(sampler, interval=interval, count=count, pid=pid)
        _print_lines(samples, sampler, opened) if as_json else _show(samples, sampler, opened)
    except KeyboardInterrupt:
        return  # the ordinary way to end it
    finally:
        opened.close()


def take_samples(
    sampler: Sampler,
    *,
    interval: float,
    count: int | None = None,
    pid: int | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[dict[str, float]]:
    """Yield samples on an absolute schedule until ``count`` are taken or the process ``pid`` has ended."""
    began, taken = clock(), 0
    while count is None or taken < count:
        if pid is not None and not _runs(pid):
            return
        yield sampler.sample()
        taken += 1
        if count is None or taken < count:
            due = began + max(taken, int((clock() - began) / interval) + 1) * interval
            sleep(max(0.0, due - clock()))


def _runs(pid: int) -> bool:
    try:
        # one that has ended stays in the table until its parent asks for it
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _environment(pid: int | None) -> dict[str, str]:
    if pid is None:
        return dict(os.environ)
    try:
        return dict(psutil.Process(pid).environ())
    except psutil.NoSuchProcess as error:
        raise typer.BadParameter(f"--pid {pid}: no such process; give the id of a running one.") from error
    except psutil.AccessDenied:
        # another user's job: its masks cannot be read, so all devices are shown
        return {}


def _print_lines(samples: Iterator[dict[str, float]], sampler: Sampler, opened: OpenDevices) -> None:
    for values in samples:
        line = {"unix_seconds": round(time.time(), 3), "devices": device_facts(opened), "values": values}
        if notices := sampler.drain_notices():
            line["notices"] = notices
        print(json.dumps(line, allow_nan=False), flush=True)


def _show(samples: Iterator[dict[str, float]], sampler: Sampler, opened: OpenDevices) -> None:
    console, notices = Console(), list[str]()

    def views() -> Iterator[Group]:
        for values in samples:
            notices.extend(sampler.drain_notices())
            yield live_view(device_facts(opened), values, notices)

    if not console.is_terminal or console.is_dumb_terminal:
        # a file cannot be overwritten: rich would show the last view alone, and that at the end
        for view in views():
            console.print(view)
        return
    with Live(console=console, auto_refresh=False) as live:
        for view in views():
            live.update(view, refresh=True)

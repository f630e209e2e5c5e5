"""Which physical device is ``cuda:i``: by identifier first, by position only where positions are proved to agree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hf_trainplus.monitor.devices.visible import parse_visible_devices


@dataclass(frozen=True)
class MigSlice:
    """One MIG device of a GPU: its UUID, GPU instance and compute instance."""

    uuid: str
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True)
class PhysicalDevice:
    """A GPU as the driver lists it, in PCI order; ``slices`` are its MIG devices when the mode is on.

    A device whose UUID cannot be read keeps its place in the list (None): positions behind it prove nothing.
    """

    uuid: str | None
    name: str | None = None
    mig_enabled: bool = False
    slices: tuple[MigSlice, ...] = ()


@dataclass(frozen=True)
class Match:
    """Logical index -> UUID of a GPU or of a MIG slice, and the fact that ties them."""

    index: int
    uuid: str
    matched_by: str


@dataclass(frozen=True)
class MatchResult:
    """The devices that could be matched, and one sentence for each that could not."""

    matches: tuple[Match, ...]
    notices: tuple[str, ...] = ()


class _Unmatched(Exception):  # noqa: N818 - a signal inside this module, never seen outside
    """The token cannot be tied to a device; ``invalid`` when CUDA itself stops at it and hides the ones behind."""

    def __init__(self, reason: str, *, invalid: bool = False) -> None:
        super().__init__(reason)
        self.invalid = invalid


def match_devices(
    physical: Sequence[PhysicalDevice],
    *,
    torch_uuids: Sequence[str] | None = None,
    mask: str | None = None,
    device_order: str | None = None,
) -> MatchResult:
    """Match logical CUDA indices to physical devices.

    Identifiers that torch reports win; then the mask. A position is believed only when positions must agree: one
    device, CUDA_DEVICE_ORDER=PCI_BUS_ID (the driver's own order), or devices of one model (the default FASTEST_FIRST
    then has nothing to sort); and never behind a device that the driver counts and refuses to show, nor beside MIG
    devices. Otherwise the device is left out and said so; none is ever guessed.

    Args:
        physical: the driver's devices in its own order.
        torch_uuids: ``torch.cuda.get_device_properties(i).uuid`` for i = 0, 1, ..., with or without prefix.
        mask: text of CUDA_VISIBLE_DEVICES, None when unset.
        device_order: text of CUDA_DEVICE_ORDER, None when unset.

    Returns:
        One match a device that is certain, in logical order, and the notices for the others.

    Example:
        >>> gpus = [PhysicalDevice("GPU-aa", "H100"), PhysicalDevice("GPU-bb", "H100")]
        >>> [(m.index, m.uuid, m.matched_by) for m in match_devices(gpus, mask="1,0").matches]
        [(0, 'GPU-bb', 'same model'), (1, 'GPU-aa', 'same model')]
        >>> match_devices(gpus, torch_uuids=["bb"]).matches[0].uuid
        'GPU-bb'
    """
    tokens = parse_visible_devices(mask)
    if torch_uuids is not None:
        return _collect([_by_torch_uuid(uuid, physical, tokens) for uuid in torch_uuids])
    if tokens is None:
        tokens = tuple(str(position) for position in range(len(physical)))
    found: list[tuple[str, str] | str] = []
    for token in tokens:
        try:
            found.append(_by_token(token, physical, device_order))
        except _Unmatched as reason:
            found.append(str(reason))
            if reason.invalid:
                break
    named = [item[0] for item in found if not isinstance(item, str)]
    if len(set(named)) < len(named):
        # 0,GPU-... of the same card: what CUDA makes of it is written nowhere
        return MatchResult((), (f"no device is monitored: {mask!r} names a device twice; name each once.",))
    return _collect(found)


def _collect(found: Sequence[tuple[str, str] | str]) -> MatchResult:
    matches, notices = [], []
    for index, item in enumerate(found):
        if isinstance(item, str):
            notices.append(f"cuda:{index} is not monitored: {item}")
        else:
            matches.append(Match(index, *item))
    return MatchResult(tuple(matches), tuple(notices))


def _by_torch_uuid(
    uuid: str, physical: Sequence[PhysicalDevice], tokens: tuple[str, ...] | None
) -> tuple[str, str] | str:
    bare = uuid.lower().removeprefix("gpu-").removeprefix("mig-")
    for device in physical:
        for mig in device.slices:
            if mig.uuid.lower().removeprefix("mig-") == bare:
                return mig.uuid, "torch uuid"
        if device.uuid is not None and device.uuid.lower().removeprefix("gpu-") == bare:
            try:
                return _whole_or_slice(device, tokens), "torch uuid"
            except _Unmatched as reason:
                return str(reason)
    return f"the driver lists no device with torch's UUID {uuid}."


def _whole_or_slice(device: PhysicalDevice, tokens: tuple[str, ...] | None = None) -> str:
    if device.uuid is None:
        raise _Unmatched("the driver does not tell its UUID.")
    if not device.mig_enabled:
        return device.uuid
    for token in tokens or ():
        named = [mig for mig in device.slices if _names_slice(token, device, mig)]
        if len(named) == 1:
            return named[0].uuid
    if len(device.slices) == 1:
        return device.slices[0].uuid
    raise _Unmatched(
        f"{device.uuid} has {len(device.slices)} MIG devices; name one, e.g. CUDA_VISIBLE_DEVICES=MIG-<uuid>."
    )


def _by_token(token: str, physical: Sequence[PhysicalDevice], device_order: str | None) -> tuple[str, str]:
    lowered = token.lower()
    if lowered.startswith("mig-"):
        named = [mig.uuid for device in physical for mig in device.slices if _names_slice(token, device, mig)]
        return _only(named, token), "visible uuid"
    if lowered.startswith("gpu-"):
        devices = {device.uuid: device for device in physical if device.uuid is not None}
        named = [uuid for uuid in devices if uuid.lower().startswith(lowered)]
        return _whole_or_slice(devices[_only(named, token)]), "visible uuid"
    if int(token) >= len(physical):
        raise _Unmatched(f"index {token} does not exist; the driver lists {len(physical)} devices.", invalid=True)
    proof = _order_proof(physical, int(token), device_order)
    return _whole_or_slice(physical[int(token)]), proof


def _names_slice(token: str, device: PhysicalDevice, mig: MigSlice) -> bool:
    lowered = token.lower()
    legacy = f"mig-{device.uuid}/{mig.gpu_instance}/{mig.compute_instance}".lower()
    return lowered == legacy or mig.uuid.lower().startswith(lowered)


def _only(named: list[str], token: str) -> str:
    if len(named) != 1:
        raise _Unmatched(
            f"{token} names {len(named)} devices; give enough of the UUID to name one (nvidia-smi -L).", invalid=True
        )
    return named[0]


def _order_proof(physical: Sequence[PhysicalDevice], position: int, device_order: str | None) -> str:
    if len(physical) == 1:
        return "single device"
    # the driver counts what a cgroup hides, and CUDA does not; beside a MIG device CUDA hides whole ones, or skips it
    if any(device.uuid is None for device in physical[:position]):
        raise _Unmatched("a device before it cannot be read, so CUDA's indices need not be the driver's; name UUIDs.")
    if any(device.mig_enabled for device in physical):
        raise _Unmatched(
            "CUDA counts no MIG devices beside whole ones; name one, e.g. CUDA_VISIBLE_DEVICES=MIG-<uuid>."
        )
    if device_order == "PCI_BUS_ID":
        return "PCI order"
    if physical[0].name is not None and len({device.name for device in physical}) == 1:
        return "same model"
    raise _Unmatched(
        "the machine has devices of different models, so CUDA's indices need not be the driver's; "
        "set CUDA_DEVICE_ORDER=PCI_BUS_ID or name devices by UUID."
    )

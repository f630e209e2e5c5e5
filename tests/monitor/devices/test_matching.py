import pytest

from hf_trainplus.monitor.devices.matching import MigSlice, PhysicalDevice, match_devices

A, B, C = "GPU-aaaa1111-0000", "GPU-aaab2222-0000", "GPU-cccc3333-0000"
SAME = [PhysicalDevice(A, "H100"), PhysicalDevice(B, "H100"), PhysicalDevice(C, "H100")]
MIXED = [PhysicalDevice(A, "T4"), PhysicalDevice(B, "H100"), PhysicalDevice(C, "T4")]
SLICED = [
    PhysicalDevice(A, "A100", True, (MigSlice("MIG-11", 1, 0), MigSlice("MIG-12", 2, 0))),
    PhysicalDevice(B, "A100"),
]


def uuids(result):
    return [(match.index, match.uuid) for match in result.matches]


def test_torch_uuids_beat_every_order():
    # FASTEST_FIRST puts the H100 first although the driver lists a T4 first
    result = match_devices(MIXED, torch_uuids=["aaab2222-0000", "aaaa1111-0000", "cccc3333-0000"])
    assert uuids(result) == [(0, B), (1, A), (2, C)]
    assert {match.matched_by for match in result.matches} == {"torch uuid"}


def test_torch_uuids_under_a_mask_keep_logical_indices():
    assert uuids(match_devices(SAME, torch_uuids=["GPU-cccc3333-0000"], mask="2")) == [(0, C)]


@pytest.mark.parametrize("mask", [f"0,{A}", f"{B},1", f"GPU-aaaa,{A}"])
def test_a_device_named_twice_in_two_forms_leaves_nothing_certain(mask):
    result = match_devices(SAME, mask=mask)
    assert result.matches == ()
    assert result.notices == (f"no device is monitored: {mask!r} names a device twice; name each once.",)
    assert uuids(match_devices(SAME, mask=mask, torch_uuids=["aaaa1111-0000"])) == [(0, A)]


def test_a_torch_uuid_that_the_driver_does_not_list_is_said_and_the_others_kept():
    result = match_devices(SAME, torch_uuids=["dead", "cccc3333-0000"])
    assert uuids(result) == [(1, C)]
    assert "cuda:0 is not monitored: the driver lists no device with torch's UUID dead" in result.notices[0]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, [(0, A), (1, B), (2, C)]),
        ("", []),
        ("-1", []),
        ("2,0", [(0, C), (1, A)]),
        ("0,2,-1,1", [(0, A), (1, C)]),
        (f"{C},{A}", [(0, C), (1, A)]),
        ("GPU-aaab", [(0, B)]),
        ("gpu-CCCC", [(0, C)]),
        ("GPU-aaa", []),  # two devices share the prefix
        ("GPU-dddd,GPU-cccc", []),  # the first is invalid and hides the rest
        ("0,9,1", [(0, A)]),
    ],
)
def test_every_form_of_the_mask_on_equal_devices(mask, expected):
    assert uuids(match_devices(SAME, mask=mask)) == expected


def test_positions_are_never_believed_among_different_models():
    result = match_devices(MIXED, mask="1,0")
    assert uuids(result) == []
    assert len(result.notices) == 2
    assert "set CUDA_DEVICE_ORDER=PCI_BUS_ID" in result.notices[0]


def test_positions_are_believed_in_pci_order():
    result = match_devices(MIXED, mask="1,0", device_order="PCI_BUS_ID")
    assert uuids(result) == [(0, B), (1, A)]
    assert result.matches[0].matched_by == "PCI order"


def test_uuids_in_the_mask_need_no_order():
    result = match_devices(MIXED, mask="GPU-cccc,GPU-aaab")
    assert uuids(result) == [(0, C), (1, B)]
    assert result.matches[0].matched_by == "visible uuid"


def test_a_single_device_needs_no_proof():
    assert match_devices([PhysicalDevice(A)]).matches[0].matched_by == "single device"


@pytest.mark.parametrize("mask", ["MIG-12", "MIG-GPU-aaaa1111-0000/2/0", "mig-12"])
def test_mig_slices_by_either_identifier(mask):
    assert uuids(match_devices(SLICED, mask=mask)) == [(0, "MIG-12")]


def test_a_mig_uuid_from_torch():
    assert uuids(match_devices(SLICED, torch_uuids=["12"])) == [(0, "MIG-12")]


def test_the_parents_uuid_from_torch_is_resolved_by_the_mask():
    # before CUDA 12 the runtime tells the whole GPU's UUID for a slice
    assert uuids(match_devices(SLICED, torch_uuids=["aaaa1111-0000"], mask="MIG-12")) == [(0, "MIG-12")]


def test_an_ambiguous_slice_is_left_out_rather_than_guessed():
    result = match_devices(SLICED, torch_uuids=["aaaa1111-0000"])
    assert uuids(result) == []
    assert "has 2 MIG devices; name one" in result.notices[0]


def test_the_only_slice_of_a_gpu_is_meant():
    one = [PhysicalDevice(A, "A100", True, (MigSlice("MIG-11", 1, 0),))]
    assert uuids(match_devices(one, mask="GPU-aaaa")) == [(0, "MIG-11")]


@pytest.mark.parametrize("mask", ["0,1,2", None, "0,2"])
def test_behind_a_device_that_a_cgroup_hides_no_position_is_believed(mask):
    # the driver counts all four; CUDA sees the first, third and fourth, as 0, 1 and 2
    physical = [PhysicalDevice(A, "H100"), PhysicalDevice(None), PhysicalDevice(B, "H100"), PhysicalDevice(C, "H100")]
    result = match_devices(physical, mask=mask, device_order="PCI_BUS_ID")
    assert uuids(result) == [(0, A)]
    assert "a device before it cannot be read" in result.notices[-1]
    assert uuids(match_devices(physical, mask=f"{B},{C}")) == [(0, B), (1, C)]


def test_a_device_without_a_uuid_is_said():
    result = match_devices([PhysicalDevice(B, "H100"), PhysicalDevice(None)], mask="1,0", device_order="PCI_BUS_ID")
    assert uuids(result) == [(1, B)]
    assert "the driver does not tell its UUID" in result.notices[0]


@pytest.mark.parametrize("slices", [(), (MigSlice("MIG-11", 1, 0),)])
@pytest.mark.parametrize("mask", [None, "0", "1", "0,1"])
def test_beside_mig_devices_no_position_is_believed(slices, mask):
    # with a slice CUDA hides the whole device; without one it skips the first and the whole device is cuda:0
    physical = [PhysicalDevice(A, "A100", True, slices), PhysicalDevice(B, "A100")]
    result = match_devices(physical, mask=mask, device_order="PCI_BUS_ID")
    assert uuids(result) == []
    assert "name one, e.g. CUDA_VISIBLE_DEVICES=MIG-<uuid>" in result.notices[0]

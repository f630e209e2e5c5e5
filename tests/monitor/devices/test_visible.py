import pytest

from hf_trainplus.monitor.devices.visible import parse_visible_devices


@pytest.mark.parametrize(
    ("mask", "tokens"),
    [
        (None, None),
        ("", ()),
        ("   ", ()),
        ("-1", ()),
        ("none", ()),
        ("NoDevFiles", ()),
        ("0", ("0",)),
        ("3,1,0", ("3", "1", "0")),
        (" 0 , 2 ", ("0", "2")),
        ("0,2,-1,1", ("0", "2")),
        ("0,,1", ("0",)),
        ("0,x,1", ("0",)),
        ("1,1", ()),
        ("GPU-8932f937", ("GPU-8932f937",)),
        ("GPU-aa,gpu-AA", ()),
        ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,GPU-1", ("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6", "GPU-1")),
        ("MIG-GPU-8932f937-d72c/1/0", ("MIG-GPU-8932f937-d72c/1/0",)),
        ("MIG-b4a1", ("MIG-b4a1",)),
    ],
)
def test_forms_of_the_mask(mask, tokens):
    assert parse_visible_devices(mask) == tokens

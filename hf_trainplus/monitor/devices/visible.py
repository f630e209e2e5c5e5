"""CUDA_VISIBLE_DEVICES and its relatives, read as the CUDA runtime reads them."""

from __future__ import annotations


def parse_visible_devices(mask: str | None) -> tuple[str, ...] | None:
    """Split a visibility mask into the tokens that the runtime would honour.

    It looks no device up: whether ``GPU-8932`` is unique, or index 7 exists, is for ``match_devices``.

    Args:
        mask: the variable's text; None when it is not set.

    Returns:
        None when every device is visible, else the tokens in logical order: ``()`` hides all. Tokens after the first
        invalid one (``-1``, a word) are dropped, and a repeated token hides every device, as CUDA does it:
        CUDA programming guide, "CUDA environment variables".

    Example:
        >>> parse_visible_devices("2,0"), parse_visible_devices("0,2,-1,1"), parse_visible_devices("")
        (('2', '0'), ('0', '2'), ())
        >>> parse_visible_devices("GPU-8932f937, MIG-b4a1"), parse_visible_devices("1,1"), parse_visible_devices(None)
        (('GPU-8932f937', 'MIG-b4a1'), (), None)
    """
    if mask is None:
        return None
    tokens: list[str] = []
    for raw in mask.split(","):
        token = raw.strip()
        if not _is_valid(token):
            break
        tokens.append(token)
    if len({token.lower() for token in tokens}) < len(tokens):
        return ()
    return tuple(tokens)


def _is_valid(token: str) -> bool:
    return token.isdecimal() or token.lower().startswith(("gpu-", "mig-"))

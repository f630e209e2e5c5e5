"""Whether a device's use of 0 % may be believed."""

from __future__ import annotations

from hf_trainplus.monitor.devices.reading import UseStatus


class UseTrust:
    """Tell "idle" from "this driver cannot measure use".

    Under WSL, on many vGPUs and in some containers the use reads 0 (or nothing) for ever while kernels run. A zero
    therefore counts only once the device has shown a use above zero, or while nobody is known to work on it and the
    platform is not one of those. It does not correct a value: it returns it or None.

    Args:
        suspect: True on a platform whose zeros are known to be empty (WSL, vGPU, MIG).
        proof: number of zeros or missing values while work is under way after which the use is called not
            measurable, >= 1.

    Raises:
        ValueError: ``proof`` below 1.

    Example:
        >>> trust = UseTrust(suspect=False, proof=2)
        >>> [trust.judge(0.0, working=True), trust.judge(0.0, working=True), trust.status]
        [None, None, 'not measurable']
        >>> [trust.judge(35.0, working=True), trust.judge(0.0, working=False), trust.status]
        [35.0, 0.0, 'measured']
    """

    def __init__(self, *, suspect: bool, proof: int = 10) -> None:
        if proof < 1:
            raise ValueError(f"proof={proof}; allowed is 1 or more, e.g. UseTrust(suspect=False, proof=10).")
        self._suspect = suspect
        self._proof = proof
        self._seen = False
        self._contradictions = 0

    @property
    def status(self) -> UseStatus:
        """``measured`` after a use above zero, ``not measurable`` after proof of the contrary, else ``unknown``."""
        if self._seen:
            return "measured"
        return "not measurable" if self._contradictions >= self._proof else "unknown"

    def judge(self, percent: float | None, *, working: bool) -> float | None:
        """Return the use to report.

        Args:
            percent: what the driver said, 0 to 100, or None.
            working: training steps are known to advance on the device.

        Returns:
            ``percent`` where it can be believed, else None.
        """
        if percent is not None and percent > 0:
            self._seen = True
        if self._seen:
            return percent
        if working:
            self._contradictions += 1
            return None
        return None if self._suspect else percent

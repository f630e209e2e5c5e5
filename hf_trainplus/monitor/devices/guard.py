"""Each value guarded alone: one that fails is missing, and the others live on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

Value = TypeVar("Value")


class ValueGuard:
    """Ask a driver for values, one guard a device.

    A value that fails ``attempts`` times in a row is given up and never asked for again; one that the driver says it
    cannot give (``permanent``) at once and without a word. The first value that is given up for another reason puts
    one sentence into ``notices``; the later ones of the same device stay silent. It logs nothing itself.

    Args:
        owner: how the device is called in the notice.
        notices: list that the sentence is appended to.
        errors: exceptions of the driver's library; any other propagates.
        permanent: tells whether an error means that the value does not exist on this device.
        attempts: failures in a row before a value is given up, >= 1.

    Raises:
        ValueError: ``attempts`` below 1.

    Example:
        >>> notices = []
        >>> guard = ValueGuard("GPU 0", notices, errors=(OSError,), permanent=lambda error: False, attempts=1)
        >>> def broken():
        ...     raise OSError("Unknown Error")
        >>> guard.ask("power_watts", broken), guard.ask("temperature_celsius", lambda: 51)
        (None, 51)
        >>> notices
        ['GPU 0: power_watts cannot be read (Unknown Error); it is reported as missing from here on.']
    """

    def __init__(
        self,
        owner: str,
        notices: list[str],
        *,
        errors: Sequence[type[Exception]],
        permanent: Callable[[Exception], bool],
        attempts: int = 3,
    ) -> None:
        if attempts < 1:
            raise ValueError(f"attempts={attempts}; allowed is 1 or more, e.g. ValueGuard(..., attempts=3).")
        self._owner = owner
        self._notices = notices
        self._errors = tuple(errors)
        self._permanent = permanent
        self._attempts = attempts
        self._failures: dict[str, int] = {}
        self._warned = False

    @property
    def given_up(self) -> tuple[str, ...]:
        """Names of the values that are not asked for any more."""
        return tuple(name for name, count in self._failures.items() if count >= self._attempts)

    def ask(self, name: str, query: Callable[[], Value]) -> Value | None:
        """Return the value, or None when it is missing now or was given up before."""
        if self._failures.get(name, 0) >= self._attempts:
            return None
        try:
            value = query()
        except self._errors as error:
            self._count(name, error)
            return None
        self._failures.pop(name, None)
        return value

    def _count(self, name: str, error: Exception) -> None:
        if self._permanent(error):
            self._failures[name] = self._attempts
            return
        self._failures[name] = self._failures.get(name, 0) + 1
        if self._failures[name] >= self._attempts and not self._warned:
            self._warned = True
            self._notices.append(
                f"{self._owner}: {name} cannot be read ({error}); it is reported as missing from here on."
            )

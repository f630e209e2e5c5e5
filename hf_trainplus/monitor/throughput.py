"""How fast a run trains: differences of cumulative counters over the time that was spent training."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Counters:
    """What a run has processed so far on all ranks together; None where nothing counts it, never 0.

    Args:
        examples: rows.
        tokens: input tokens.
        flops: floating-point operations of the model, forward and backward.

    Example:
        >>> Counters(examples=30, tokens=None).minus(Counters(examples=10, tokens=5)).tokens is None
        True
    """

    examples: float | None = None
    tokens: float | None = None
    flops: float | None = None

    def minus(self, earlier: Counters) -> Counters:
        """Return what was added since ``earlier``; None where either side does not count."""
        return Counters(
            _difference(self.examples, earlier.examples),
            _difference(self.tokens, earlier.tokens),
            _difference(self.flops, earlier.flops),
        )

    def plus(self, other: Counters) -> Counters:
        """Return both together; None where either side does not count."""
        return Counters(
            _sum(self.examples, other.examples), _sum(self.tokens, other.tokens), _sum(self.flops, other.flops)
        )


@dataclass(frozen=True)
class Throughput:
    """Rates of all ranks together; None where the counter is missing."""

    examples_per_second: float | None
    tokens_per_second: float | None
    tflops_per_device: float | None
    model_flops_utilization_percent: float | None


def measure_throughput(
    added: Counters, training_seconds: float, *, devices: int = 1, peak_flops: float | None = None
) -> Throughput:
    """Turn what was added in an interval into rates.

    It does not know when the interval began: take both ends from the same run, so that a resumed run's old totals
    cancel. Evaluation and saving must already be out of ``training_seconds``.

    Args:
        added: difference of two ``Counters``.
        training_seconds: time spent training, in seconds.
        devices: devices of the whole run, >= 1.
        peak_flops: peak of one device in FLOP/s at the precision that is trained in; None leaves the utilisation out.

    Returns:
        The rates. Model FLOPs utilisation is the model's own FLOP/s over the peak (Chowdhery et al. 2022, PaLM,
        appendix B); with Trainer's count (6 x parameters without embeddings x tokens) attention's own products are
        not in it.

    Raises:
        ValueError: ``devices`` or ``peak_flops`` not above 0, or a negative time.

    Example:
        >>> rates = measure_throughput(Counters(64, 6400, 4e12), 2.0, devices=2, peak_flops=1e13)
        >>> rates.examples_per_second, rates.tflops_per_device, rates.model_flops_utilization_percent
        (32.0, 1.0, 10.0)
    """
    if devices < 1 or training_seconds < 0 or (peak_flops is not None and peak_flops <= 0):
        raise ValueError(
            f"devices={devices}, training_seconds={training_seconds}, peak_flops={peak_flops}; allowed are devices "
            ">= 1, a time >= 0 and a peak > 0, e.g. peak_flops=989e12 for an H100 in bf16."
        )
    per_device = None
    if added.flops is not None and training_seconds > 0:
        per_device = added.flops / training_seconds / devices
    return Throughput(
        _rate(added.examples, training_seconds),
        _rate(added.tokens, training_seconds),
        None if per_device is None else per_device / 1e12,
        None if per_device is None or peak_flops is None else 100.0 * per_device / peak_flops,
    )


def _rate(added: float | None, seconds: float) -> float | None:
    return None if added is None or seconds <= 0 else added / seconds


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _difference(now: float | None, then: float | None) -> float | None:
    return None if now is None or then is None else now - then

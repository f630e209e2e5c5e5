"""Are clocks held down by power or heat?"""

from __future__ import annotations

from hf_trainplus.monitor.diagnosis.evidence import DeviceEvidence, Evidence
from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.verdict import Verdict


class ThrottlingRule(DiagnosisRule):
    """Found when a device says that heat or power held its clocks down for more than a share of the samples.

    A power cap that is met under full load is by design on many cards, so its threshold is high.

    Args:
        thermal_percent: of samples, 0 to 100.
        power_percent: of samples, 0 to 100.
    """

    name = "throttling"

    def __init__(self, *, thermal_percent: float = 5.0, power_percent: float = 50.0) -> None:
        self.thermal_percent = thermal_percent
        self.power_percent = power_percent

    def check(self, evidence: Evidence) -> Verdict:
        """Judge the worst device."""
        told = [device for device in evidence.devices if _told(device)]
        if not told:
            return self.unknown("no device tells why its clocks are held down.")
        hot = max(told, key=lambda device: device.thermal_throttled_percent or 0.0)
        capped = max(told, key=lambda device: device.power_throttled_percent or 0.0)
        heat, power = hot.thermal_throttled_percent or 0.0, capped.power_throttled_percent or 0.0
        figures = {"thermal_throttled_percent": heat, "power_throttled_percent": power}
        if heat >= self.thermal_percent:
            degrees = "" if hot.temperature_celsius is None else f" at up to {hot.temperature_celsius:.0f} °C"
            message = f"gpu{hot.index} was slowed down by heat in {heat:.0f} % of the samples{degrees}."
            return self.verdict(
                True, message, next_step="look at cooling and at its neighbours' load.", evidence=figures
            )
        message = f"gpu{capped.index} was slowed down by its power limit in {power:.0f} % of the samples."
        advice = "nvidia-smi -q -d POWER shows the limit; raise it, or expect these clocks."
        return self.verdict(power >= self.power_percent, message, next_step=advice, evidence=figures)


def _told(device: DeviceEvidence) -> bool:
    return device.thermal_throttled_percent is not None or device.power_throttled_percent is not None

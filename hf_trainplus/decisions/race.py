"""The race: the decisions of full evaluation from the fewest rows (names of ``hf_trainplus.decisions.racing``)."""

from hf_trainplus.decisions.racing.commands import (
    Answer,
    Command,
    Drop,
    Evaluate,
    Evaluated,
    Keep,
    Kept,
    RaceDriver,
    drive,
)
from hf_trainplus.decisions.racing.config import RaceConfig
from hf_trainplus.decisions.racing.engine import Race
from hf_trainplus.decisions.racing.metrics import LossMetric, RaceMetric, ScoreMetric, StatisticMetric
from hf_trainplus.decisions.racing.records import ComparisonRecord, RaceVerdict

__all__ = [
    "Answer",
    "Command",
    "ComparisonRecord",
    "Drop",
    "Evaluate",
    "Evaluated",
    "Keep",
    "Kept",
    "LossMetric",
    "Race",
    "RaceConfig",
    "RaceDriver",
    "RaceMetric",
    "RaceVerdict",
    "ScoreMetric",
    "StatisticMetric",
    "drive",
]

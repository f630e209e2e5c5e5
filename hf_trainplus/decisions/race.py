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
from hf_trainplus.decisions.racing.judge import RaceMetric
from hf_trainplus.decisions.racing.metrics import LossMetric, ScoreMetric, StatisticMetric
from hf_trainplus.decisions.racing.opaque import OpaqueMetric
from hf_trainplus.decisions.racing.reasons import cannot_race
from hf_trainplus.decisions.racing.records import ComparisonRecord, LevelVerdict, RaceVerdict
from hf_trainplus.decisions.racing.saved import read_state, write_state

__all__ = [
    "Answer",
    "Command",
    "ComparisonRecord",
    "Drop",
    "Evaluate",
    "Evaluated",
    "Keep",
    "Kept",
    "LevelVerdict",
    "LossMetric",
    "OpaqueMetric",
    "Race",
    "RaceConfig",
    "RaceDriver",
    "RaceMetric",
    "RaceVerdict",
    "ScoreMetric",
    "StatisticMetric",
    "cannot_race",
    "drive",
    "read_state",
    "write_state",
]

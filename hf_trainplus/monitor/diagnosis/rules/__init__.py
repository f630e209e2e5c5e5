"""The rules that are checked unless a run brings its own."""

from hf_trainplus.monitor.diagnosis.rule import DiagnosisRule
from hf_trainplus.monitor.diagnosis.rules.communication_bound import CommunicationBoundRule
from hf_trainplus.monitor.diagnosis.rules.compute_bound import ComputeBoundRule
from hf_trainplus.monitor.diagnosis.rules.data_bound import DataBoundRule
from hf_trainplus.monitor.diagnosis.rules.divergence import DivergenceRule
from hf_trainplus.monitor.diagnosis.rules.evaluation_bound import EvaluationBoundRule
from hf_trainplus.monitor.diagnosis.rules.fragmentation import FragmentationRule
from hf_trainplus.monitor.diagnosis.rules.gradient_spikes import GradientSpikesRule
from hf_trainplus.monitor.diagnosis.rules.host_bound import HostBoundRule
from hf_trainplus.monitor.diagnosis.rules.logging_often import LoggingOftenRule
from hf_trainplus.monitor.diagnosis.rules.loss_oscillation import LossOscillationRule
from hf_trainplus.monitor.diagnosis.rules.memory_full import MemoryFullRule
from hf_trainplus.monitor.diagnosis.rules.nonfinite_loss import NonFiniteLossRule
from hf_trainplus.monitor.diagnosis.rules.overfitting import OverfittingRule
from hf_trainplus.monitor.diagnosis.rules.plateau import PlateauRule
from hf_trainplus.monitor.diagnosis.rules.saving_bound import SavingBoundRule
from hf_trainplus.monitor.diagnosis.rules.small_batch import SmallBatchRule
from hf_trainplus.monitor.diagnosis.rules.straggler import StragglerRule
from hf_trainplus.monitor.diagnosis.rules.throttling import ThrottlingRule

RULES: tuple[type[DiagnosisRule], ...] = (
    NonFiniteLossRule,
    DivergenceRule,
    LossOscillationRule,
    GradientSpikesRule,
    OverfittingRule,
    PlateauRule,
    DataBoundRule,
    StragglerRule,
    CommunicationBoundRule,
    HostBoundRule,
    SmallBatchRule,
    MemoryFullRule,
    FragmentationRule,
    EvaluationBoundRule,
    SavingBoundRule,
    LoggingOftenRule,
    ThrottlingRule,
    ComputeBoundRule,
)
"""In the order in which they are told: what is wrong with learning first, then what wastes time."""

__all__ = ["RULES", *sorted(rule.__name__ for rule in RULES)]

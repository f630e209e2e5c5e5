"""Every estimator under one roof.

``estimate`` gives a metric of per-example results with its interval, ``estimate_slices`` the metric in each slice, and
``estimate_difference`` what two checkpoints differ by on the same rows. The others take plain arrays.
"""

from hf_trainplus.decisions.estimators.auc import auc_interval
from hf_trainplus.decisions.estimators.delta import smooth_interval
from hf_trainplus.decisions.estimators.design import SampleDesign
from hf_trainplus.decisions.estimators.f1 import f1_interval
from hf_trainplus.decisions.estimators.intervals import loss_interval, mean_interval, ratio_interval
from hf_trainplus.decisions.estimators.jackknife import jackknife_interval, jackknife_intervals
from hf_trainplus.decisions.estimators.mcc import mcc_interval
from hf_trainplus.decisions.estimators.of_results import design_of_results, estimate, estimate_slices
from hf_trainplus.decisions.estimators.paired import (
    anchored_estimate,
    difference_interval,
    loss_difference_interval,
)
from hf_trainplus.decisions.estimators.paired_results import estimate_difference
from hf_trainplus.decisions.estimators.perplexity import perplexity_of
from hf_trainplus.decisions.estimators.proportions import wilson_interval
from hf_trainplus.decisions.estimators.uncertainty import Estimate

__all__ = [
    "Estimate",
    "SampleDesign",
    "anchored_estimate",
    "auc_interval",
    "design_of_results",
    "difference_interval",
    "estimate",
    "estimate_difference",
    "estimate_slices",
    "f1_interval",
    "jackknife_interval",
    "jackknife_intervals",
    "loss_difference_interval",
    "loss_interval",
    "mcc_interval",
    "mean_interval",
    "perplexity_of",
    "ratio_interval",
    "smooth_interval",
    "wilson_interval",
]

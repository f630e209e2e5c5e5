"""Metrics that see one batch at a time: ``load_metric`` makes them, ``as_metric`` takes what users have already."""

from hf_trainplus.evaluation.metrics.base import AdditiveMetric as AdditiveMetric
from hf_trainplus.evaluation.metrics.base import Metric as Metric
from hf_trainplus.evaluation.metrics.registry import load_metric as load_metric
from hf_trainplus.evaluation.metrics.registry import metric_names as metric_names

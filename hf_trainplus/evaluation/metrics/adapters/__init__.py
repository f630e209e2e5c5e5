"""Whatever a user passes as ``compute_metrics``, brought to what the evaluation loop asks of a metric."""

from hf_trainplus.evaluation.metrics.adapters.choose import as_metric as as_metric
from hf_trainplus.evaluation.metrics.adapters.contract import CollectedMetric as CollectedMetric
from hf_trainplus.evaluation.metrics.adapters.contract import StreamingMetric as StreamingMetric
from hf_trainplus.evaluation.metrics.adapters.reducer import MetricReducer as MetricReducer

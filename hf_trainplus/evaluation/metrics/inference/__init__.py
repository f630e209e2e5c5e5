"""What a metric function does with its predictions, read off its source without running it."""

from hf_trainplus.evaluation.metrics.inference.reduction import infer_reduction as infer_reduction

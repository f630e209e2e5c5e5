"""From a dataset to per-example results: all that touches a model in evaluation."""

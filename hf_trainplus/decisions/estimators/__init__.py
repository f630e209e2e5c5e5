"""Estimators, one kind a file; ``decisions.estimate`` is their public face."""

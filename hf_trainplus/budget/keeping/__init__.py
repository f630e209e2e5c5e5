"""Keeping a run inside its budget: measured costs, what is left, whether another step fits."""

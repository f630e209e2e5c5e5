"""Running a plan: stages one after another, each from the checkpoint at its boundary."""

"""What surrounds an evaluation inside a training run: best checkpoints, the race's driver, resume."""

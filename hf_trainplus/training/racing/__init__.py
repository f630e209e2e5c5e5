"""The race's driver inside a training run: candidates' weights, decisions on disk, what is evaluated when."""

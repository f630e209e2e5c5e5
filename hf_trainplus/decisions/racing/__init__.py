"""The parts of the race: what is compared, in which order, by which estimator, and how a driver is told."""

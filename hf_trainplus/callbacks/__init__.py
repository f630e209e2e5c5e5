"""One thin TrainerCallback a file: reads state, calls the parts below, sets control."""

"""From per-example results to a decision: numpy only, no torch, no Trainer."""

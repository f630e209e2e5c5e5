"""Per-example losses, one loss kind of transformers a file; ``hf_trainplus.evaluation.losses`` picks among them."""

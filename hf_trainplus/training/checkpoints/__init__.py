"""Checkpoints that a kill never tears, that are judged before they are resumed from, and what a resume carries over."""

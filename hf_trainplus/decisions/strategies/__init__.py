"""Ways to draw a subset, one class a file; ``decisions.subset`` is their public face."""

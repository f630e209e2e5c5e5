"""Tiny models, data sets and trainers that the tests share."""

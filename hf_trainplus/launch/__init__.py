"""Launching: each stage of a plan in processes of its own."""

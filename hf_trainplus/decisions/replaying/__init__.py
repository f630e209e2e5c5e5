"""Replay of recorded runs: the trace, the driver that answers a race from it, and the policies."""

"""The loops of a run, and the one that captures."""

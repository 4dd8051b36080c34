"""VStream as a feed of capture: responses of a vtgate to changes with tokens."""

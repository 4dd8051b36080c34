"""The faults that a mirror was once measured under, one after the other, against the real thing."""

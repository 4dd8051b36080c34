"""Whether a source is fit, before a run and during it."""

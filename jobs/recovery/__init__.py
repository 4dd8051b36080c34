"""Going on after a source has lost something, and mending rows."""

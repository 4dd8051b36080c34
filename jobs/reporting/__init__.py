"""What is told to people: lines, events of a run, progress, logs."""

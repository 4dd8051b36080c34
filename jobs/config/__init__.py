"""What the config says, and what the rooms take of it."""

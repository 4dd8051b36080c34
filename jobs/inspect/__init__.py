"""Looking at a mirror: comparing, querying, time travel, status."""

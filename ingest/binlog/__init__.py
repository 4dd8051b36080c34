"""From binlog events to transactions: the state machine as a table, and what walks events by it."""

"""Which shards there are, where their streams begin, part and end."""

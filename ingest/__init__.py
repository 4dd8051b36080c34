"""Capture: slices of every shard's stream, turned into change files and committed as rounds.

Lives here: binlog events and transactions (`binlog`), one shard's slice (`capture`), its files
(`files`), and rounds over all shards (`rounds`). Does not live here: sockets and framing (`wire`),
merging the changes (`merge`).
"""

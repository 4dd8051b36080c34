"""The servers' protocols. The only package that opens a connection to a source.

Lives here: sessions and their errors (`session`, `failures`), receive buffers and raw result rows
(`stream`), what a server is fit for (`probe`), the binlog stream and its framing (`binlog`), and
the kernels that decode row images and text rows (`decode`). Does not live here: what a
transaction is and what becomes of its rows (`ingest`), chunks (`snapshot`).
"""

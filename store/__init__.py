"""What lies in the lake besides the mirrored rows: files, round log, table states, schemas, cuts.

All I/O with the lake that is not Spark's goes through `store.files.Lake`. Nothing here knows a
source server, and nothing here starts Spark.
"""

"""The commands of `ratchet`, and the wiring of the rooms.

Only this package knows all the others. Modules that the quick commands use (`config`, `check`,
`status`, `asof`, `logs`, `cli`) do not import Spark.
"""

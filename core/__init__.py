"""Values and pure functions of Ratchet: positions, tokens, schemas, errors.

Nothing here does I/O, knows Spark or compiles kernels; every value is frozen.
"""

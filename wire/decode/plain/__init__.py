"""The readable half of the decoder: what each kernel of `wire.decode.kernels` does, in Python.

The modules have the names of the kernels', their functions the same arguments and results. They
are written from the servers' formats with what Python offers (whole numbers of any size, `decimal`,
`datetime`, `ipaddress`), not from the kernels, so that the two check each other.

Invariant: the same answers as the kernels for any bytes whatever, some hundred times slower.
"""

"""The compiled half of the decoder: numba kernels over the bytes of many rows at once.

Every kernel takes arrays and numbers and returns arrays and numbers; it raises nothing. A column
comes as (buf, offs, lens): where each of its values lies in `buf`, -1 for NULL. What is wrong with
the bytes comes back as the number of the first row that is, -1 if none (`GOOD`).

Invariant: no bytes whatever make a kernel read or write outside its arrays: each checks the
value's place and length before it looks at it. Its twin in `wire.decode.plain` gives the same
answers.
"""

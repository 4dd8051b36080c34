"""Ratchet: mirrors MySQL, MariaDB and Vitess keyspaces into Delta Lake tables, never backwards.

The packages lie at the top of the repository; the links beside this file make them one package,
under one name, in a checkout as in a wheel. Nothing imports them by their bare names: a module
would be there twice (`tests/unit/test_layers.py`).
"""

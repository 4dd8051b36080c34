"""Spark: its session, its jars, its temporary folders."""

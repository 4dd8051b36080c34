"""Small Java classes of ours, compiled by the compiler that Spark brings for its generated code.

Lives here: compiling one. Does not live here: what they do (`sqlwalk`, `exitfiles`).
"""

from __future__ import annotations

from typing import Any


def compiled(jvm: Any, name: str, source: str) -> Any:
    """A class, compiled anew; it takes some milliseconds.

    Args:
        jvm: py4j's view of the JVM.
        name: of the class.
        source: its Java.
    """
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler.getClassLoader().loadClass(name)

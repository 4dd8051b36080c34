"""Java remembers each file that it is to remove at its end, and a run does not end for months.

Spark names one for each result that it hands to Python through a socket in a folder: some 200
bytes of memory for good, a gigabyte a month of a busy run. The folder goes as a whole with the
command, so nothing has to be remembered.

Lives here: making Java forget. Does not live here: the folder (`tempfolder`).
"""

from __future__ import annotations

from typing import Any, Final

from ratchet.jobs.engine.javacode import compiled

_NAME: Final = "RatchetForgetful"
_JAVA: Final = """
public final class RatchetForgetful extends java.util.LinkedHashSet {
    public boolean add(Object one) { return true; }
}
"""


def forget_files_at_exit(jvm: Any, gateway: Any) -> None:
    """Let the JVM note no more files that it is to remove when it ends.

    Args:
        jvm: py4j's view of it, once Spark runs in it: Spark opens `java.io` for such as this.
        gateway: py4j's.
    """
    forgetful = compiled(jvm, _NAME, _JAVA).getDeclaredConstructors()[0]
    noted = jvm.java.lang.Class.forName("java.io.DeleteOnExitHook").getDeclaredField("files")
    noted.setAccessible(True)
    noted.set(None, forgetful.newInstance(gateway.new_array(jvm.java.lang.Object, 0)))

"""py4j's port answers only processes of our own user.

Whoever connects to it may send bytes before it asks for the secret, and it keeps them until a line
ends: another user of the machine could take all of Java's memory so, and a query hung for good. The
kernel tells whose a connection on the loopback address is (`/proc/net/tcp`), so a foreign one is
closed before a byte of it is read.

Lives here: putting a listener that asks the kernel in the place of py4j's. Does not live here:
Spark's other ports, which have no such place (SECURITY.md says what they can be made to take);
reading the table from Python (`ratchet.socketowners`).
"""

from __future__ import annotations

import os
import threading
from typing import Any, Final

from ratchet.jobs.engine.javacode import compiled
from ratchet.socketowners import read_entries

_NAME: Final = "RatchetOwnPeers"
# A connection whose socket nobody has any more (inode 0) is said to be root's.
_JAVA: Final = """
public final class RatchetOwnPeers extends java.net.ServerSocket {
    private final java.net.ServerSocket all;
    private final String user;

    public RatchetOwnPeers(Object server, String user) throws Exception {
        this.user = user;
        java.lang.reflect.Field field = py4j.GatewayServer.class.getDeclaredField("sSocket");
        field.setAccessible(true);
        this.all = (java.net.ServerSocket) field.get(server);
        field.set(server, this);
    }

    public java.net.Socket accept() throws java.io.IOException {
        while (true) {
            java.net.Socket one = all.accept();
            if (isOurs(one)) {
                return one;
            }
            one.close();
        }
    }

    private boolean isOurs(java.net.Socket one) throws java.io.IOException {
        String peer = address(one.getInetAddress(), one.getPort());
        String own = address(one.getLocalAddress(), one.getLocalPort());
        String[] tables = {"/proc/self/net/tcp", "/proc/self/net/tcp6"};
        for (int n = 0; n < tables.length; n++) {
            java.io.BufferedReader table;
            try {
                table = new java.io.BufferedReader(new java.io.FileReader(tables[n]));
            } catch (java.io.FileNotFoundException absent) {
                continue;
            }
            try {
                String line = table.readLine();
                while (line != null) {
                    String[] words = line.trim().split(" +");
                    if (words.length > 9 && words[1].endsWith(peer) && words[2].endsWith(own)) {
                        return words[7].equals(user) && !words[9].equals("0");
                    }
                    line = table.readLine();
                }
            } finally {
                table.close();
            }
        }
        return false;
    }

    private static String address(java.net.InetAddress host, int port) {
        byte[] bytes = host.getAddress();
        boolean little = java.nio.ByteOrder.nativeOrder() == java.nio.ByteOrder.LITTLE_ENDIAN;
        String text = "";
        for (int n = 0; n < bytes.length; n++) {
            String two = String.format("%02X", new Object[] {Integer.valueOf(bytes[n] & 255)});
            text = little ? two + text : text + two;
        }
        return text + String.format(":%04X", new Object[] {Integer.valueOf(port)});
    }

    public void close() throws java.io.IOException { all.close(); }
    public boolean isClosed() { return all.isClosed(); }
    public boolean isBound() { return all.isBound(); }
    public int getLocalPort() { return all.getLocalPort(); }
    public java.net.InetAddress getInetAddress() { return all.getInetAddress(); }
    public java.net.SocketAddress getLocalSocketAddress() { return all.getLocalSocketAddress(); }
}
"""


def refuse_other_users(gateway: Any) -> bool:
    """Let py4j take no connection of another user from here on; False where nothing tells whose.

    Args:
        gateway: py4j's, as soon as it is there: who has connected before keeps what he has.
    """
    if not kernel_tells_users(int(gateway.java_gateway_server.getListeningPort())):
        return False
    take_only(gateway, os.getuid())
    return True


def take_only(gateway: Any, user: int) -> None:
    """Let py4j take only the connections of one user, by number."""
    server = gateway.java_gateway_server
    made = compiled(gateway.jvm, _NAME, _JAVA).getDeclaredConstructors()[0]
    given = gateway.new_array(gateway.jvm.java.lang.Object, 2)
    given[0], given[1] = server, str(user)
    made.newInstance(given)
    # py4j waits in its old listener for one more connection, which each thread of ours makes.
    knock = threading.Thread(target=gateway.jvm.java.lang.System.nanoTime, name="knock")
    knock.start()
    knock.join()


def kernel_tells_users(port: int) -> bool:
    """Whether the kernel says that connections to a port of this machine are ours: py4j has one."""
    try:
        entries = read_entries(port) or []
    except OSError:
        return False
    return any(one.remote == ("127.0.0.1", port) and one.user == os.getuid() for one in entries)

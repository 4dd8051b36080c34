"""The lab's front door: private MariaDB and MySQL servers, and what is done with them.

Lives here: `MariadbServer`, `MysqlServer` and the settings special to each. Does not live here:
what both can do (`server`), the accounts that Ratchet uses (`accounts`), replication between
servers (`replication`); the last two are offered here as well.

    with MysqlServer(options={"binlog-row-image": "MINIMAL"}) as server:
        server.execute("CREATE DATABASE shop")
        create_ratchet_user(server, "secret", ["shop"])
"""

from __future__ import annotations

from lab import provision
from lab.accounts import RATCHET_PASSWORD, RATCHET_USER, create_ratchet_user
from lab.provision import Installation
from lab.replication import replicate_from, stop_replication, wait_for_link, wait_for_replica
from lab.server import Options, Rows, Server, ServerError
from ratchet.core.errors import BugError

__all__ = [
    "RATCHET_PASSWORD",
    "RATCHET_USER",
    "MariadbServer",
    "MysqlServer",
    "Options",
    "Rows",
    "Server",
    "ServerError",
    "create_ratchet_user",
    "replicate_from",
    "stop_replication",
    "wait_for_link",
    "wait_for_replica",
]


class MariadbServer(Server):
    """A private MariaDB 10.11."""

    flavor = "mariadb"

    @classmethod
    def _installation(cls) -> Installation:
        return provision.mariadb()

    def _defaults(self, *, gtid: bool) -> Options:
        if not gtid:
            raise BugError("MariaDB always has GTIDs", operation="prepare a mariadb server")
        return {
            "binlog-format": "ROW",  # its default is MIXED
            "log-slave-updates": "ON",
            "performance-schema": "OFF",
            "innodb-log-file-size": "64M",
        }


class NewMariadbServer(MariadbServer):
    """A private MariaDB 11.8."""

    @classmethod
    def _installation(cls) -> Installation:
        return provision.new_mariadb()


class MysqlServer(Server):
    """A private MySQL 9.7, with GTIDs unless told otherwise."""

    flavor = "mysql"

    @classmethod
    def _installation(cls) -> Installation:
        return provision.mysql()

    def _defaults(self, *, gtid: bool) -> Options:
        return {
            "gtid-mode": "ON" if gtid else "OFF",
            "enforce-gtid-consistency": "ON" if gtid else "OFF",
            "mysqlx": "OFF",
            "innodb-redo-log-capacity": "64M",
        }

    def _tls_options(self) -> Options:
        # Left alone, MySQL offers TLS with certificates that it made itself.
        return super()._tls_options() if self.tls else {"tls-version": ""}

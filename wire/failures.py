"""What a server's error means to Ratchet: the error class, and the statement that mends it.

Lives here: the map from MySQL and MariaDB error numbers to `core.errors`, for statements, for the
handshake and for the binlog stream. Does not live here: retrying.

Invariant: a password never appears in an error made here, because none is ever passed in.
"""

from __future__ import annotations

import re
from typing import Final

import pymysql
from pymysql.constants import CR

from ratchet.core.errors import (
    DatabaseGoneError,
    DecodeError,
    LockedError,
    PositionLostError,
    RatchetError,
    RetryableError,
    ServerRefusedError,
    SourceUnfitError,
    TableStoppedError,
    UnverifiedServerError,
)
from ratchet.core.shell import shell_word
from ratchet.wire.decode.answers import UNSOUND_HINT
from ratchet.wire.tls import ALERT


class UnsoundAnswer(pymysql.err.Error):
    """What came is no answer to what was asked. Has a sentence, and no number."""


class UnverifiedPeer(pymysql.err.OperationalError):
    """Somebody who may be anybody asks for the password."""


class UntrustedOwner(UnverifiedPeer):
    """The process of this machine that serves the port is none of a server's accounts."""


class UnprovenPeer(UnverifiedPeer):
    """The server does not prove that it knows the password."""


_LONGEST: Final = 4096  # characters of a server's message
_BINLOG: Final = 1236
_TAKEN_OVER: Final = 4052  # MariaDB's own number for one of 1236's causes

_RETRY_HINT: Final = "check that the server runs and can be reached; a run tries again by itself"
_ACCOUNT_HINT: Final = (
    "check user and password; the account needs: CREATE USER '{user}'@'%' IDENTIFIED BY '...'; "
    "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'; "
    "GRANT SELECT ON `{database}`.* TO '{user}'@'%'; one with REQUIRE X509 needs tls_cert and "
    "tls_key in the config"
)
_GRANTS_HINT: Final = (
    "as an administrator: GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{user}'@'%'; "
    "GRANT SELECT ON `{database}`.* TO '{user}'@'%'; or correct `database` in the config (a server "
    "gives the same error for one that does not exist)"
)
_TLS_HINT: Final = (
    "check tls, tls_ca, tls_cert and tls_key in the config, and the server's TLS settings"
)
_OTHER_AUTHORITY: Final = (
    "the server's certificate was signed by another authority than that of tls_ca: point tls_ca to "
    "the right one, and make sure that this is the right server"
)
# What OpenSSL and PyMySQL say, and what to change for it.
_TLS_HINTS: Final = {
    "certificate has expired": "renew the server's certificate (or the authority's in tls_ca)",
    "not yet valid": "compare the clocks of this machine and of the server",
    "self-signed certificate in certificate chain": _OTHER_AUTHORITY,
    "unable to get local issuer": _OTHER_AUTHORITY,
    "self-signed certificate": "the server's certificate is self-signed: have it signed by an "
    "authority, or point tls_ca to it if it is the right one",
    "is not valid for": "set `host` in the config to a name in the server's certificate, or have a "
    "certificate for this host signed by the authority of tls_ca (MySQL and MariaDB: verify_ca "
    "accepts any host's)",
    "server doesn't support it": "the server offers no TLS: give it a certificate (ssl_cert, "
    "ssl_key). On a private network, tls: disabled sends everything as plain text",
}
_LOCKED_HINT: Final = (
    "another session holds its lock, such as an ALTER TABLE that waits for an open transaction: "
    "see SHOW FULL PROCESSLIST; it is tried again until the table is free"
)
_STRANGE_HINT: Final = (
    "compare the versions of the server and of any proxy with those in Ratchet's README; if yours "
    "is one of them, this is a bug of Ratchet's: please report it"
)
_LONG_HINT: Final = (
    "see SHOW FULL PROCESSLIST. A question about tables takes long where many views stand on each "
    "other (SHOW FULL TABLES WHERE Table_type = 'VIEW'); a run tries again by itself"
)
_PRIVILEGE: Final = "a privilege is missing"
_LOGIN: Final = "login refused"
_Rule = tuple[frozenset[int], type[RatchetError], str, str]  # numbers, class, what, remedy

_RULES: Final[tuple[_Rule, ...]] = (
    (
        # No number at all, too many connections, shutdown, deadlocks, statements that
        # were killed or timed out, lost links.
        frozenset({0, 1040, 1053, 1077, 1079, 1080, 1105, 1129, 1152, 1158, 1159, 1160, 1161})
        | {1184, 1203, 1213, 1226, 1317, 1637, 1927, 2002, 2003, 2005, 2006, 2013}
        | {2055, 3024, 3168, 3169, 4031},
        RetryableError,
        "connection or statement failed",
        _RETRY_HINT,
    ),
    (
        frozenset({1969}),  # MariaDB's max_statement_time
        RetryableError,
        "a statement took too long",
        _LONG_HINT,
    ),
    (
        frozenset({1205}),
        LockedError,
        "the table is locked",
        _LOCKED_HINT,
    ),
    (
        # Disk, memory, threads, files of the server's, or of the statement's temporary tables.
        frozenset({3, 5, 28, 1021, 1037, 1038, 1041, 1114, 1135, 1206, 1878}),
        RetryableError,
        "the server is out of disk space or memory",
        "give it more disk space or memory; a run tries again by itself",
    ),
    (
        frozenset({1045, 1130, 1251, 1275, 1698, 1820, 1862, 2059, 2061, 3118, 3955, 4151}),
        SourceUnfitError,
        _LOGIN,
        _ACCOUNT_HINT,
    ),
    (
        frozenset({1044, 1142, 1143, 1227, 1370, 3530}),
        SourceUnfitError,
        _PRIVILEGE,
        _GRANTS_HINT,
    ),
    (
        frozenset({1049}),
        DatabaseGoneError,
        "no such database",
        "correct `database` of this shard in the config, or create it",
    ),
    (frozenset({2026, 3159}), UnverifiedServerError, "TLS failed", _TLS_HINT),
    (
        frozenset({1051, 1054, 1109, 1146, 1412, 1932, 1962}),
        TableStoppedError,
        "the table is gone or has changed",
        "`ratchet table CONFIG redump TABLE`, or exclude it in `tables` of the config",
    ),
    (
        # A fork, an old version, a proxy, or whoever wants a run to end: any server can say this.
        frozenset({1064, 1193, 1305}),
        SourceUnfitError,
        "the server does not accept our statement",
        _STRANGE_HINT,
    ),
)
_TORN: Final = "truncated in the middle of event"
_LOST: Final = re.compile(
    r"purged|could not find first log|not in the master's binlog|more gtids than|earlier binlog"
    r"|has been lost|is missing|lost needed|gap in the"
)
# What a server says where no event begins: it was asked for a wrong place, or its file is damaged.
_GARBAGE: Final = re.compile(
    r"bogus data|truncated in the middle|exceeded max_allowed_packet|impossible position|"
    r"position > file size",
    re.IGNORECASE,
)
HEAL_HINT: Final = (
    "`ratchet heal CONFIG` (with --shard KEYSPACE/SHARD if it leaves this one as it is) reads "
    "again what the lost transactions touched, or has the rows dumped again, and nothing else; "
    "--dry-run says which (docs/operations.md, 'The position is lost'). Keep binlogs longer than "
    "the longest pause (MySQL: binlog_expire_logs_seconds, MariaDB: expire_logs_days)"
)

TABLET_HINT: Final = (
    "a tablet ends a transaction after --queryserver-config-olap-transaction-timeout (30 s unless "
    "set), and vtgate then closes the connection: make snapshot.chunk_seconds smaller, or raise "
    "that flag"
)
# A transaction that was idle for too long, and one with a statement that ran for too long.
_TABLET_ENDED: Final = re.compile(
    r"vttablet: .*(exceeded timeout|execution time exceeded)", re.DOTALL
)

_NO_TABLET: Final = "no healthy tablet available"
_NO_TABLET_HINT: Final = (
    "no tablet of this type serves the shard: look at tablet_type in the config and at the shard's "
    "tablets; one that is starting, or a shard that was just resharded, recovers by itself"
)

_VTGATE_HINTS: Final = {
    _LOGIN: "check user and password; vtgate reads them from --mysql-auth-server-static-file",
    _PRIVILEGE: "allow this user in the ACLs of vtgate and of the tablets",
    "no such database": "correct the keyspace's name in the config",
    "connection or statement failed": "check that vtgate and its tablets run and that mysql_port "
    "is the port of MySQL's protocol; a run tries again by itself",
}
# Of a vtgate, which calls it an unknown error, and of PyMySQL (see wire.connect).
_WANTS_TLS: Final = re.compile(r"does not allow insecure connections|clear[- ]text")
_WANTS_PROOF_HINT: Final = (
    "set tls: verify_identity and tls_ca, the PEM file of the authority that signed the server's "
    "certificate (verify_ca with tls_ca if the certificate does not name the host), or let the "
    "account log in without showing its password (MariaDB: mysql_native_password; MySQL's "
    "caching_sha2_password asks for it once, until the server has it in its cache)"
)
_UNPROVEN_HINT: Final = (
    "see whether the address is the server's own. Servers before MariaDB 11.4 and proxies prove "
    "nothing, nor does a login by another plugin than mysql_native_password: for these set tls: "
    "verify_identity and tls_ca, the PEM file of the authority that signed the certificate"
)
OWNER_HINT: Final = (
    "see who listens there (ss -ltnp, as root) and whether that is your server: its account may be "
    "root, ours, mysql, mariadb or vitess (any system account where none of them is known here)"
)
_OWNER_HINT: Final = (
    f"{OWNER_HINT}. If it runs as another one, or behind a tunnel of another one, let TLS verify "
    "it: tls: verify_identity with tls_ca, or verify_password for MariaDB. tls: preferred in the "
    "config accepts whoever listens there, and does not show him the password itself"
)
_WANTS_TLS_HINT: Final = "set tls in the config: this server wants encrypted connections"

_DOUBTS: Final[dict[type[UnverifiedPeer], tuple[type[RatchetError], str, str]]] = {
    UnprovenPeer: (UnverifiedServerError, "TLS failed", _UNPROVEN_HINT),
    # He may have taken the port while the server is restarted, and be gone when it is back.
    UntrustedOwner: (RetryableError, "the server is not trusted", _OWNER_HINT),
}

_OTHERS: Final[_Rule] = (
    frozenset(),
    ServerRefusedError,
    "the server refused",
    "see the server's documentation of this error number",
)


def server_failure(
    error: pymysql.err.Error,
    *,
    operation: str,
    source: str,
    user: str = "",
    database: str = "",
    table: str = "",
    position: str = "",
    vtgate: bool = False,
    logged_in: bool = False,
) -> RatchetError:
    """The error to raise (`from error`) for what PyMySQL reports.

    `vtgate`: whether the server is one, whose accounts are not MySQL's. `logged_in`: whether the
    account has logged in before.
    """
    code, text = code_and_text(error)
    if isinstance(error, UnsoundAnswer):
        return DecodeError(
            f"the server's answer makes no sense: {text}",
            operation=operation,
            source=source,
            table=table,
            position=position,
            hint=UNSOUND_HINT,
        )
    # PyMySQL takes an alert for a lost connection.
    if ALERT.search(text) or _WANTS_TLS.search(text):
        code = CR.CR_SSL_CONNECTION_ERROR
    if code == _BINLOG:
        return binlog_failure(text, operation=operation, source=source, position=position)
    # MariaDB refuses an account without REPLICATION SLAVE as one with a wrong password (10.11).
    known = 1227 if logged_in and code == 1045 else code
    _, kind, what, remedy = next((rule for rule in _RULES if known in rule[0]), _OTHERS)
    if vtgate:
        remedy = _VTGATE_HINTS.get(what, remedy)
    if _WANTS_TLS.search(text):
        remedy = _WANTS_TLS_HINT
    if code == CR.CR_SSL_CONNECTION_ERROR:
        remedy = next((hint for said, hint in _TLS_HINTS.items() if said in text), remedy)
    if isinstance(error, UnverifiedPeer):
        kind, what, remedy = _DOUBTS.get(type(error), (kind, what, _WANTS_PROOF_HINT))
    if _TABLET_ENDED.search(text):
        remedy = TABLET_HINT
    if _NO_TABLET in text:
        remedy = _NO_TABLET_HINT
    return kind(
        f"{what} ({code}): {text}",
        operation=operation,
        source=source,
        table=table,
        position=position,
        hint=remedy.format(user=(user or "USER").replace("'", "''"), database=_mirrored(database)),
    )


def _mirrored(database: str) -> str:
    """A database as it stands in a GRANT's quotes; whose it is, where none is mirrored."""
    return "DATABASE" if database in {"", "information_schema"} else database.replace("`", "``")


def binlog_failure(
    text: str, *, operation: str, source: str, position: str = "", code: int = _BINLOG
) -> RatchetError:
    """The error for an error packet in a binlog stream. 1236 stands for a dozen causes."""
    where = {"operation": operation, "source": source, "position": position}
    low = text.lower()
    if code not in (_BINLOG, _TAKEN_OVER):
        return server_failure(
            pymysql.err.OperationalError(code, text),
            operation=operation,
            source=source,
            position=position,
            logged_in=True,
        )
    if re.search(r"same server[_-](uuid|id)", low):
        return SourceUnfitError(
            f"another client took over this stream with our server id: {text}",
            **where,
            hint="two programs read this server with the same server id: stop the other one, or "
            "set another capture.server_id_base in the config",
        )
    if "anonymous transaction" in low:
        return nameless(text, **where)
    if _TORN in low:
        # A server reads on in the file that a crash has torn for as long as our position lacks the
        # transaction that was torn, which no file has.
        return PositionLostError(
            f"a file of the server's log ends within a transaction: {text}",
            **where,
            hint=f"a crash, a disk or the server itself has torn it. {torn_remedy(source)}",
        )
    if _LOST.search(low):
        return PositionLostError(
            f"the server cannot stream from our position: {text}", **where, hint=HEAL_HINT
        )
    hint = "if it persists, look at the server's error log and its binlog files"
    if is_garbage(text):
        hint = (
            "if it persists, an event is larger than the server's replica_max_allowed_packet "
            f"(slave_max_allowed_packet), or the file is damaged. {torn_remedy(source)}"
        )
    return RetryableError(f"the binlog stream broke off ({code}): {text}", **where, hint=hint)


def is_garbage(text: str) -> bool:
    """Whether a server says of its log that no event begins where it reads."""
    return _GARBAGE.search(text) is not None


def torn_remedy(source: str) -> str:
    """How to continue after a damaged file of a server's log."""
    return (
        f"Begin a new file on the server (FLUSH BINARY LOGS;); then `ratchet heal CONFIG --shard "
        f"{shell_word(source)} --dump`, and `ratchet run CONFIG` dumps the shard's tables again"
    )


def nameless(said: str, *, operation: str, source: str, position: str) -> SourceUnfitError:
    """The error for a transaction without a GTID in the log of a MySQL that has GTIDs.

    Args:
        said: by whom it was found, for people; empty if by us.
        operation: see RatchetError.
        source: the shard, KEYSPACE/SHARD.
        position: where it stands.
    """
    return SourceUnfitError(
        "a transaction has no GTID, although the server uses them" + (said and f": {said}"),
        operation=operation,
        source=source,
        position=position,
        hint="it was written while gtid_mode was not ON: with gtid_mode = ON, `ratchet heal CONFIG "
        f"--shard {shell_word(source)} --dump`, then `ratchet run CONFIG` dumps the shard's tables "
        "again",
    )


def code_and_text(error: BaseException) -> tuple[int, str]:
    """Error number and message of a PyMySQL error; 0 where it carries none.

    The message is cut: a server's has some hundred characters, an answer may have 256 MB. And it is
    one line: what stands on another one is our remedy.
    """
    arguments = error.args
    if len(arguments) > 1 and isinstance(arguments[0], int):
        return arguments[0], _one_line(str(arguments[1]))
    return 0, _one_line(str(error)) or type(error).__name__


def _one_line(text: str) -> str:
    return text[:_LONGEST].replace("\r", "\\r").replace("\n", "\\n")

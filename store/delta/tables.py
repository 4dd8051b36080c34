"""Creates the Delta tables that Ratchet mirrors into, and their side tables.

The first commit of the log is written here, by the rules of Delta's PROTOCOL.md, rather than by
Spark (seconds per table) or deltalake (adds the reader feature variantType with deletion vectors,
which keeps older readers out): see docs/decisions. So is the commit that adds columns, as Spark
refuses names with spaces and commas, and the one that gives a table other columns. All else is
committed by Spark or deltalake. Invariant: a table is created once; its features are those it
needs.
"""

from __future__ import annotations

import errno
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder, Schema
from deltalake.exceptions import TableNotFoundError

from ratchet.core.change import TOKEN_COLUMN, TOKEN_TYPE
from ratchet.core.columnrules import unfit_name
from ratchet.core.errors import LakeError, TableStoppedError
from ratchet.store.delta.actions import (
    Action,
    AppTransaction,
    CommitInfo,
    TableMetadata,
    TableProtocol,
    rewrite_info,
)
from ratchet.store.delta.commits import begin_log, commit_files, progress
from ratchet.store.delta.errors import UnreadTableError, conflict, delta_errors
from ratchet.store.delta.log import replay
from ratchet.store.failures import errno_of, lost_file_hint, storage_error
from ratchet.store.files import Lake

if TYPE_CHECKING:
    from deltalake import Metadata
    from deltalake.table import ProtocolVersions

_LOGGED: Final = (".json", ".checkpoint.parquet")
_EMPTY: Final = "empty a table for its dump"
RETENTION: Final = "interval 7 days"
BATCH_ROWS: Final = 8_192  # of a batch that is read, as the engine has it by itself


def mirrored_schema(columns: pa.Schema, *, table: str) -> pa.Schema:
    """The mirrored table's schema: the source's columns, all nullable, and `_token`.

    Raises:
        TableStoppedError: a column of the source has a name that is taken.
    """
    odd = unfit_name(columns.names, table=table.rsplit(".", 1)[-1])
    if odd is not None:
        raise TableStoppedError(
            odd.message, operation="create the mirrored table", table=table, hint=odd.hint
        )
    fields = [field.with_nullable(True).remove_metadata() for field in columns]
    return pa.schema([*fields, pa.field(TOKEN_COLUMN, TOKEN_TYPE)])


def create_delta_table(
    lake: Lake,
    path: str,
    schema: pa.Schema,
    *,
    name: str,
    description: str,
    now: int,
    stats: Sequence[str] = (),
    deletion_vectors: bool = True,
    above: int = -1,
) -> bool:
    """Create an empty Delta table unless there is one.

    Args:
        lake: the lake.
        path: relative to its root (store.layout).
        schema: all columns.
        name: the table's name in Delta's metadata.
        description: what readers of the table should know.
        now: microseconds UTC.
        stats: columns (top level or "struct.field") that files keep statistics of, in Delta's
            quoted notation (`stats_columns`). Only these are pruned by.
        deletion_vectors: whether changes may mark rows instead of rewriting their files.
        above: the highest number of a log that stood there, and must not be used again; -1: none.

    Returns:
        Whether it was created now.
    """
    configuration = {
        "delta.logRetentionDuration": RETENTION,
        "delta.deletedFileRetentionDuration": RETENTION,
        "delta.checkpointInterval": "20",
    }
    if stats:
        configuration["delta.dataSkippingStatsColumns"] = ",".join(stats)
    else:
        configuration["delta.dataSkippingNumIndexedCols"] = "0"
    if deletion_vectors:
        configuration["delta.enableDeletionVectors"] = "true"
    actions: list[Action] = [
        CommitInfo(operation="CREATE TABLE", made_at=now, blind=True),
        _protocol(schema, deletion_vectors=deletion_vectors),
        TableMetadata(
            id=str(uuid.uuid4()),
            name=name,
            description=description,
            schema_text=Schema.from_arrow(schema).to_json(),
            configuration=configuration,
            created_at=now // 1000,
        ),
    ]
    if above >= 0:
        return begin_log(lake, path, above + 1, actions)
    if any(one.path.endswith(_LOGGED) for one in lake.list(f"{path}/_delta_log")):
        return False  # also where its first commits have been cleaned up
    return commit_files(lake, path, None, actions) is not None


def create_mirrored_table(
    lake: Lake,
    path: str,
    columns: pa.Schema,
    *,
    key: Sequence[str],
    name: str,
    now: int,
    deletion_vectors: bool = True,
    above: int = -1,
) -> bool:
    """Create the Delta table of a mirrored table unless there is one.

    Args:
        lake: the lake.
        path: `TableState.path`.
        columns: the source's columns (`core.types.arrow_schema`).
        key: names of the key's columns: files keep statistics of them.
        name: keyspace.table.
        now: microseconds UTC.
        deletion_vectors: see create_delta_table.
        above: see create_delta_table.

    Returns:
        Whether it was created now.

    Raises:
        TableStoppedError: a column of the source has a name that is taken.
    """
    schema = mirrored_schema(columns, table=name)
    return create_delta_table(
        lake,
        path,
        schema,
        name=name,
        description=f"{name}, mirrored by Ratchet. Column {TOKEN_COLUMN} says which transaction "
        "wrote each row. Read it freely; only Ratchet may write.",
        now=now,
        stats=stats_columns(schema, key),
        deletion_vectors=deletion_vectors,
        above=above,
    )


def add_columns(lake: Lake, path: str, schema: pa.Schema, *, now: int) -> bool:
    """Add the columns, and the fields inside structs, that a Delta table lacks of a schema.

    They are NULL in every row that is there. Done again, it changes nothing.

    Args:
        lake: the lake.
        path: the table's; if there is none, nothing is done.
        schema: all columns that it is to have.
        now: microseconds UTC.

    Returns:
        Whether a commit was made.

    Raises:
        LakeError: another process has just committed to the table.
    """
    table = open_delta(lake, path)
    if table is None:
        return False
    with delta_errors("add columns", path):
        have = json.loads(table.schema().to_json())
        meta, protocol = table.metadata(), table.protocol()
    merged = _with_fields(have, json.loads(Schema.from_arrow(schema).to_json()))
    if merged == have:
        return False
    vectors = "deletionVectors" in (protocol.writer_features or ())
    actions: list[Action] = [
        CommitInfo(operation="ADD COLUMNS", made_at=now, blind=True),
        _protocol(schema, deletion_vectors=vectors),
        changed_metadata(meta, json.dumps(merged, separators=(",", ":")), meta.configuration),
    ]
    files = replay(lake, path)
    if files is None or files.version != table.version():
        raise conflict(path, "add columns")
    if commit_files(lake, path, files, actions) is None:
        raise LakeError(
            "another process has just committed to the table",
            operation="add columns",
            table=path,
            hint="only Ratchet may write to a mirrored table, and one run at a time",
        )
    return True


def set_properties(lake: Lake, path: str, properties: Mapping[str, str], *, now: int) -> bool:
    """Give a Delta table properties; whether it lacked any.

    A table that has rules of others is left as it is: its owner's tools set them.

    Args:
        lake: the lake.
        path: the table's; if there is none, nothing is done.
        properties: name -> value.
        now: microseconds UTC.

    Raises:
        LakeError: another process has just committed to the table.
    """
    table = open_delta(lake, path)
    if table is None:
        return False
    with delta_errors("set properties", path):
        meta, schema = table.metadata(), table.schema().to_json()
    configuration = {**meta.configuration, **properties}
    files = None if configuration == meta.configuration else replay(lake, path)
    if files is None or not files.writable:
        return False
    actions: list[Action] = [
        rewrite_info("SET TBLPROPERTIES", read=files.version, now=now),
        changed_metadata(meta, schema, configuration),
    ]
    if files.version != table.version() or commit_files(lake, path, files, actions) is None:
        raise conflict(path, "set properties")
    return True


def replace_columns(
    lake: Lake,
    table: DeltaTable,
    path: str,
    schema: pa.Schema,
    *,
    stats: Sequence[str],
    app: tuple[str, int],
    note: str,
    now: int,
) -> None:
    """Give a Delta table other columns and no rows, in one commit; what it was stays its history.

    Not by deltalake: it ends in an error where the log has a checkpoint by Spark with statistics of
    a column that gets another type.

    Args:
        lake: the lake.
        table: as it is now; to be opened anew afterwards.
        path: its path.
        schema: all columns.
        stats: see `create_delta_table`; none: the table keeps what it has.
        app: application and its transaction version, which the commit has.
        note: for readers of the table's history (`userMetadata`).
        now: microseconds UTC.

    Raises:
        LakeError: another process has just committed to the table.
    """
    files = replay(lake, path)
    if files is None or files.version != table.version():
        raise conflict(path, _EMPTY)
    with delta_errors(_EMPTY, path):
        meta, protocol = table.metadata(), table.protocol()
    configuration = dict(meta.configuration)
    if stats:
        configuration["delta.dataSkippingStatsColumns"] = ",".join(stats)
    vectors = "deletionVectors" in (protocol.writer_features or ())
    actions: list[Action] = [
        rewrite_info("WRITE", read=files.version, now=now, note=note),
        *upgrade_actions(protocol, _protocol(schema, deletion_vectors=vectors)),
        changed_metadata(meta, Schema.from_arrow(schema).to_json(), configuration),
        AppTransaction(app_id=app[0], version=app[1], updated_at=now),
        *(file.removed(now=now) for file in files.files.values()),
    ]
    if commit_files(lake, path, files, actions) is None:
        raise conflict(path, _EMPTY)


def upgrade_actions(have: ProtocolVersions, wanted: TableProtocol) -> Iterator[TableProtocol]:
    """The action by which a table gets the features that it lacks; none ever goes."""
    reader, writer = set(have.reader_features or ()), set(have.writer_features or ())
    if set(wanted.writer_features or ()) <= writer:
        return
    yield TableProtocol(
        reader=3,
        writer=7,
        reader_features=tuple(sorted(reader.union(wanted.reader_features or ()))),
        writer_features=tuple(sorted(writer.union(wanted.writer_features or ()))),
    )


def changed_metadata(
    meta: Metadata, schema: str, configuration: Mapping[str, str]
) -> TableMetadata:
    """The action that gives a table a schema (Delta's JSON) and properties; all else stays."""
    return TableMetadata(
        id=str(meta.id),
        name=meta.name,
        description=meta.description,
        schema_text=schema,
        partition_columns=tuple(meta.partition_columns),
        configuration=dict(configuration),
        created_at=meta.created_time,
    )


def _with_fields(have: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """A struct type of Delta's JSON with the fields of another that it lacks, behind its own."""
    named = {field["name"]: field for field in wanted["fields"]}
    fields = []
    for field in have["fields"]:
        other = named.get(field["name"], field)
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            fields.append({**field, "type": _with_fields(field["type"], other["type"])})
        else:
            fields.append(field)
    names = {field["name"] for field in have["fields"]}
    return {**have, "fields": [*fields, *(f for f in wanted["fields"] if f["name"] not in names)]}


def stats_columns(schema: pa.Schema, names: Sequence[str], *, inside: str = "") -> list[str]:
    """Those columns that Delta can keep statistics of, quoted as its table property wants them.

    Args:
        schema: where the columns are.
        names: the columns asked for.
        inside: the struct column they are fields of, if any.
    """
    prefix = f"{quoted(inside)}." if inside else ""
    return [prefix + quoted(name) for name in names if _skippable(schema.field(name).type)]


def table_version(lake: Lake, path: str) -> int | None:
    """The table's newest Delta version; None if there is no table."""
    table = open_delta(lake, path)
    return None if table is None else int(table.version())


def newest_version(lake: Lake, path: str, known: int | None) -> int:
    """The table's newest Delta version, found from one that is known: a look per newer commit.

    Raises:
        LakeError: nothing is known, and there is no table.
    """
    version = table_version(lake, path) if known is None else known
    if version is None:
        raise LakeError(
            f"the Delta table {path} is gone",
            operation="look for a table's newest version",
            hint="dump it again (`ratchet table CONFIG redump TABLE`)",
        )
    while lake.is_file(f"{path}/_delta_log/{version + 1:020d}.json"):
        version += 1
    return version


def app_version(lake: Lake, path: str, app_id: str) -> int | None:
    """The newest transaction version that `app_id` has committed; None if none."""
    table = open_delta(lake, path)
    return None if table is None else version_in(table, app_id)


def version_in(table: DeltaTable, app_id: str) -> int | None:
    """The newest transaction version of `app_id` in a table that is open; None if none."""
    return progress(table.transaction_version, app_id)


def version_within(lake: Lake, path: str, *, app_id: str, upto: int, known: int) -> int:
    """The newest version if `app_id` has committed nothing above `upto` in it; else `known`."""
    table = open_delta(lake, path)
    if table is None or (version_in(table, app_id) or 0) > upto:
        return known
    return int(table.version())


def open_delta(lake: Lake, path: str, version: int | None = None) -> DeltaTable | None:
    """The table as deltalake sees it, at its newest version or this one; None if there is none."""
    with delta_errors("open the Delta table", path):
        try:
            return DeltaTable(
                lake.delta_uri(path), version=version, storage_options=lake.storage_options
            )
        except TableNotFoundError:
            return None


def query(
    table: DeltaTable, path: str, sql: str, *, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The result of a query about one table, by deltalake's engine, batch by batch.

    Args:
        table: is named t in the query.
        path: its path in the lake, for errors.
        sql: the query.
        batch_rows: the most rows of a batch.

    Raises:
        LakeError: files of the table are gone or damaged, or the storage failed.
    """
    with delta_errors("read a Delta table", path):
        try:
            settings = {"datafusion.execution.batch_size": str(batch_rows)}
            for batch in QueryBuilder(settings).register("t", table).execute(sql):
                yield pa.record_batch(batch)
        except Exception as error:
            if type(error) is not Exception:  # the engine's own errors have no type of their own
                raise
            if errno_of(error) not in {0, errno.ENOENT}:
                raise storage_error(error, "read a file", path) from error
            raise UnreadTableError(
                f"cannot read the files of {path}",
                operation="read a Delta table",
                hint=f"see the cause; if files are gone or damaged, {lost_file_hint(path)}",
            ) from error


def row_bytes(table: DeltaTable) -> float | None:
    """About the bytes of a row in the table's files, compressed; None if that is not known."""
    actions = table.get_add_actions(flatten=True)
    rows = sum(filter(None, actions.column("num_records").to_pylist()))
    return sum(actions.column("size_bytes").to_pylist()) / rows if rows else None


def quoted(name: str) -> str:
    """An identifier as Spark and Delta quote it."""
    return "`" + name.replace("`", "``") + "`"


def _protocol(schema: pa.Schema, *, deletion_vectors: bool) -> TableProtocol:
    features = ["deletionVectors"] if deletion_vectors else []
    if any(_has_plain_timestamp(field.type) for field in schema):
        features.append("timestampNtz")
    if not features:
        return TableProtocol(reader=1, writer=2)
    return TableProtocol(
        reader=3,
        writer=7,
        reader_features=tuple(features),
        writer_features=(*features, "appendOnly", "invariants"),
    )


def _has_plain_timestamp(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_plain_timestamp(field.type) for field in kind)
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def _skippable(kind: pa.DataType) -> bool:
    # Delta refuses to list any other type in dataSkippingStatsColumns.
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_string(kind)
    )

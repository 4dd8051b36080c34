"""The command line: `ratchet COMMAND CONFIG ...`.

Lives here: arguments, help, exit codes, how errors are shown. Does not live here: what a command
does; each is a module of its own, imported when it is called, so that `ratchet --help` and the
commands that need no Spark start at once.
"""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from ratchet.core.errors import BugError, ConfigError, RatchetError
from ratchet.jobs.reporting import logs
from ratchet.jobs.reporting.terminal import is_text, lines
from ratchet.resources import IMPORTED_FROM

if TYPE_CHECKING:
    from ratchet.jobs.config.config import Config

F = TypeVar("F", bound=Callable[..., Any])

EXIT_BUG: Final = BugError.exit_code
EXIT_INTERRUPTED: Final = 130

HELP: Final = """Ratchet mirrors MySQL and MariaDB databases into Delta Lake tables, and only ever
moves them forward.

CONFIG is a YAML file; conf/example.yaml explains every key. Results go to stdout, the log goes to
stderr.

Exit codes: 0 done; 1 verify found a difference; 2 the config or the command line is wrong; 3 the
source is unfit; 4 a server stayed away; 5 the source lost what the mirror needs; 6 a table is
stopped; 7 the lake cannot be used; 8 bytes that are not understood; 9 Spark's JVM has ended; 70 a
bug; 130 interrupted.
"""


@dataclass
class Options:
    """What stands before or behind any command."""

    log_format: logs.Format = "text"
    log_level: str = "info"
    verbose: bool = False


_options: Final = Options()


def _remember(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(_: click.Context, __: click.Parameter, value: Any) -> None:
        if value:  # not given here: what stood before the command holds
            setattr(_options, name, value)

    return callback


def common(function: F) -> F:
    """The options that every command knows."""
    for option in (
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            expose_value=False,
            callback=_remember("verbose"),
            help="Show tracebacks, and log at level debug.",
        ),
        click.option(
            "--log-level",
            type=click.Choice(logs.LEVELS),
            expose_value=False,
            callback=_remember("log_level"),
            help="What is logged; info if not given.",
        ),
        click.option(
            "--log-format",
            type=click.Choice(("text", "json")),
            expose_value=False,
            callback=_remember("log_format"),
            help="Log as text (if not given) or as JSON lines.",
        ),
    ):
        function = option(function)
    return function


config_argument: Final = click.argument("config", type=click.Path(path_type=Path))
json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
until_option: Final = click.option(
    "--until-caught-up",
    is_flag=True,
    help="End when every table holds at least what each shard had executed at the beginning.",
)


def _load(path: Path, *, lake_only: bool = False) -> Config:
    from ratchet.jobs.config.config import load_config

    config = load_config(path, lake_only=lake_only)
    logs.hide(config.secrets)
    if config.lake_umask is not None:
        os.umask(config.lake_umask)  # Java and the workers inherit it
    logs.set_up(level="debug" if _options.verbose else _options.log_level, form=_options.log_format)
    return config


def _version_text() -> str:
    from importlib.metadata import version

    decoder = os.environ.get("RATCHET_DECODE", "kernel")
    parts = ", ".join(f"{name} {version(name)}" for name in ("pyspark", "delta-spark", "deltalake"))
    return f"ratchet {own_version()} ({parts}; decoder: {decoder})"


def own_version() -> str:
    """The version in the package's metadata."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("ratchet")
    except PackageNotFoundError:
        return "(not installed)"


def _show_version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001 - click's form
    if value and not context.resilient_parsing:
        click.echo(_version_text())
        context.exit()


@click.group(help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Print the versions and end.",
)
@common
def ratchet() -> None:
    """The group of all commands; its help is HELP."""


@ratchet.command()
@config_argument
@json_option
@common
def check(config: Path, as_json: bool) -> int:  # noqa: FBT001 - click's form
    """Check the config, connections, privileges and server settings.

    Prints one line for each check and, if it fails, the statement that fixes it. Exit 0: fit, 2:
    the config is wrong, 3: a source is unfit.
    """
    from ratchet.jobs.preflight.check import run_check

    return run_check(_load(config), as_json=as_json)


@ratchet.command()
@config_argument
@click.option(
    "--again",
    "again",
    multiple=True,
    metavar="T",
    help="Dump this table again (also a stopped one): T or keyspace.T, or a pattern; repeatable.",
)
@common
def dump(config: Path, again: tuple[str, ...]) -> int:
    """Load the tables that are not in the lake yet: the initial full dump.

    Records the position of the log, starts capture, and reads all tables in parallel chunks,
    without locks. Started again after a kill, it continues where it stopped.
    """
    from ratchet.jobs.run.commands import run_dump

    return run_dump(_load(config), again=again)


@ratchet.command()
@config_argument
@until_option
@common
def merge(config: Path, until_caught_up: bool) -> int:  # noqa: FBT001 - click's form
    """Follow the sources: capture their logs and merge them into the dumped tables.

    SIGTERM or Ctrl-C stops it between two steps; a second one stops it at once.
    """
    from ratchet.jobs.run.commands import run_merge

    return run_merge(_load(config), until_caught_up=until_caught_up)


@ratchet.command()
@config_argument
@until_option
@common
def run(config: Path, until_caught_up: bool) -> int:  # noqa: FBT001 - click's form
    """Dump what needs it and follow the sources: dump and merge in one.

    A table that newly matches the config is dumped while the others continue. SIGTERM or Ctrl-C
    stops it between two steps; a second one stops it at once.
    """
    from ratchet.jobs.run.commands import run_all

    return run_all(_load(config), until_caught_up=until_caught_up)


@ratchet.command()
@config_argument
@click.option(
    "--shard",
    "shards",
    multiple=True,
    metavar="K/S",
    help="Also this shard (keyspace/shard), even if what it lacks may still arrive; repeatable.",
)
@click.option(
    "--dump",
    is_flag=True,
    help="Dump all rows of these shards again, whatever their servers answer.",
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@common
def heal(
    config: Path,
    shards: tuple[str, ...],
    dump: bool,  # noqa: FBT001 - click's form
    dry_run: bool,  # noqa: FBT001
) -> int:
    """Continue with shards whose servers have lost what the mirror needs.

    After a failover that lost transactions, or a restored backup: the rows that these touched are
    read again. After a pause longer than the binlogs are kept, or RESET: the next run dumps all
    rows of the shard again. Other shards' rows stay as they are.
    """
    from ratchet.jobs.recovery.heal import run_heal

    return run_heal(_load(config), shards=shards, dump=dump, dry_run=dry_run)


@ratchet.command()
@config_argument
@click.argument("what", type=click.Choice(("add", "redump", "drop")))
@click.argument("table")
@click.option("--wait", is_flag=True, help="add, redump: wait until the table streams.")
@click.option("--delete", is_flag=True, help="drop: remove its files from the lake as well.")
@common
def table(
    config: Path,
    what: Literal["add", "redump", "drop"],
    table: str,
    wait: bool,  # noqa: FBT001 - click's form
    delete: bool,  # noqa: FBT001
) -> int:
    """Add one table, dump it again, or drop it, while a run continues with all others.

    The config says which tables are mirrored: change its `tables` before `add` and `drop`. The run
    reads it again.
    """
    from ratchet.jobs.run.tablecommands import run_table

    return run_table(_load(config), what, table, delete=delete, wait=wait)


@ratchet.command()
@config_argument
@json_option
@common
def status(config: Path, as_json: bool) -> int:  # noqa: FBT001 - click's form
    """Show positions, lag and state of each shard, and phase and round of each table."""
    from ratchet.jobs.inspect.status import run_status

    return run_status(_load(config), as_json=as_json)


@ratchet.command()
@config_argument
@json_option
@click.option("--table", "tables", multiple=True, metavar="T", help="Only this table; repeatable.")
@click.option(
    "--log",
    "of_log",
    is_flag=True,
    help="Compare what was captured with the servers' logs, as a second decoder reads them.",
)
@click.option(
    "--shard",
    "shards",
    multiple=True,
    metavar="K/S",
    help="--log: only this shard (keyspace/shard); repeatable.",
)
@click.option(
    "--from",
    "first",
    metavar="ROUND|TIME|GTID",
    help="--log: begin here; otherwise the newest 64 MB of binlog.",
)
@click.option("--to", "last", metavar="ROUND|TIME|GTID", help="--log: end here.")
@common
def verify(  # noqa: PLR0917 - click's form
    config: Path,
    as_json: bool,  # noqa: FBT001 - click's form
    tables: tuple[str, ...],
    of_log: bool,  # noqa: FBT001
    shards: tuple[str, ...],
    first: str | None,
    last: str | None,
) -> int:
    """Compare source and mirror row by row, at a stated position.

    Rows that change meanwhile are compared again. Exit 0: the same, 1: different, with the keys and
    columns. With --log: compares each row change of some rounds with the server's binlog.
    """
    if of_log:
        if tables:
            raise click.UsageError("--log compares all tables of a shard: leave --table out")
        from ratchet.jobs.inspect.logverify import run_verify_log

        return run_verify_log(_load(config), shards=shards, first=first, last=last, as_json=as_json)
    if shards or first or last:
        raise click.UsageError("--shard, --from and --to go with --log")
    from ratchet.jobs.inspect.verify import run_verify

    return run_verify(_load(config), tables=tables, as_json=as_json)


@ratchet.command()
@config_argument
@click.option("--table", "tables", multiple=True, metavar="T", help="Only this table; repeatable.")
@click.option(
    "--dry-run", is_flag=True, help="Only say what would be corrected; works beside a run as well."
)
@common
def repair(config: Path, tables: tuple[str, ...], dry_run: bool) -> int:  # noqa: FBT001 - click's form
    """Correct what verify finds: rows of the mirror that differ from the source's.

    Each such row is written as it was at the newest cut; nothing is dumped again. Exit 0: a second
    comparison found everything the same, 1: something is left, and why. Stop the run first.
    """
    from ratchet.jobs.recovery.repair import run_repair

    return run_repair(_load(config), tables=tables, dry_run=dry_run)


@ratchet.command("as-of")
@config_argument
@click.option(
    "--time", "time", metavar="T", help="Such as 2026-03-01T12:00:00Z (UTC if no zone is given)."
)
@click.option("--gtid", metavar="G", help="The first cut that holds this transaction.")
@click.option(
    "--round",
    "number",
    type=click.IntRange(0),
    metavar="N",
    help="The newest cut that holds no round above this one.",
)
@json_option
@common
def as_of(
    config: Path,
    time: str | None,
    gtid: str | None,
    number: int | None,
    as_json: bool,  # noqa: FBT001 - click's form
) -> int:
    """Print the versions of all tables at one cut, found by time, GTID or round."""
    given = [
        f"{kind}{value}"
        for kind, value in (("", time), ("gtid:", gtid), ("round:", number))
        if value is not None
    ]
    if len(given) != 1:
        raise click.UsageError("give one of --time, --gtid and --round")
    from ratchet.jobs.inspect.asof import run_as_of

    return run_as_of(_load(config, lake_only=True), given[0], as_json=as_json)


@ratchet.command()
@config_argument
@click.argument("query")
@click.option(
    "--as-of",
    "moment",
    metavar="T",
    help="All tables as they were at a time (2026-03-01T12:00:00Z), round:N or gtid:G.",
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Also show what is captured and not merged yet, by the rules of the merge.",
)
@click.option(
    "--changes",
    is_flag=True,
    help="The changes of each table instead of its rows: op (1 insert, 2 update, 3 delete), token, "
    "before, after; as far back as the change log is kept.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(("table", "json", "csv")),
    default="table",
    help="How rows are printed; json is one array of objects, in csv NULL is an empty field and an "
    'empty text is "".',
)
@click.option(
    "--unsafe",
    is_flag=True,
    help="The query may use all that Spark's SQL can do: start programs, call Java, read files. "
    "Only for a query that you trust as you trust a program.",
)
@common
def sql(
    config: Path,
    query: str,
    moment: str | None,
    form: str,
    *,
    fresh: bool,
    changes: bool,
    unsafe: bool,
) -> int:
    """Run Spark SQL over the mirrored tables, as keyspace.table, and print the rows."""
    if fresh and moment is not None:
        raise click.UsageError("--fresh shows the newest rows and --as-of old ones: give one")
    if changes and (fresh or moment is not None):
        raise click.UsageError("--changes shows no rows: leave --fresh and --as-of out")
    from ratchet.jobs.inspect.sql import run_sql

    return run_sql(
        _load(config, lake_only=True),
        query,
        moment=moment,
        form=form,
        fresh=fresh,
        changes=changes,
        unsafe=unsafe,
    )


@ratchet.command()
@click.option(
    "--home",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("ratchet-demo"),
    show_default=True,
    help="Where the demo leaves its config and lake.",
)
@click.option("--rows", type=click.IntRange(1000), default=500_000, show_default=True, help="Rows.")
@common
def demo(home: Path, rows: int) -> int:
    """Show everything on two private MariaDB servers, in about four minutes."""
    logs.set_up(level="warning", form=_options.log_format)
    if not (IMPORTED_FROM / "lab" / "demo.py").is_file():
        raise click.UsageError(
            "the demo starts its own servers, which needs a checkout: `make demo` in a clone"
        )
    sys.path.append(str(IMPORTED_FROM))
    from lab.demo import run_demo

    return run_demo(home, rows=rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """The console command: runs it, shows its error if there is one, and exits."""
    sys.exit(invoke(arguments))


def invoke(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and give its exit code."""
    _options.__init__()  # type: ignore[misc] # several command lines in one process: tests
    logs.set_up()
    try:
        _refuse_bytes(sys.argv[1:] if arguments is None else arguments)
        result = ratchet.main(
            args=None if arguments is None else list(arguments),
            prog_name="ratchet",
            standalone_mode=False,
        )
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BrokenPipeError:
        # The reader of our output has gone; what Python would flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:  # noqa: BLE001 - the outermost place: every error is shown here
        return show_error(error)
    return int(result or 0)


def _refuse_bytes(arguments: Sequence[str]) -> None:
    """Names of files, tables and columns are text wherever they go from here.

    Raises:
        ConfigError: an argument is not.
    """
    for one in arguments:
        if not is_text(one):
            raise ConfigError(
                f"an argument is not UTF-8: {one}",
                operation="read the command line",
                hint="give the file and its folders names in UTF-8",
            )


def show_error(error: Exception) -> int:
    """Print an error as its class asks for, and give its exit code."""
    known = isinstance(error, RatchetError) and not isinstance(error, BugError)
    message = str(error) if isinstance(error, RatchetError) else f"{type(error).__name__}: {error}"
    hint = error.hint if isinstance(error, RatchetError) else ""
    if not known:
        hint = _report(error)
    if _options.log_format == "json":
        fields = error.fields() if isinstance(error, RatchetError) else {"message": message}
        extra = {"fields": {**fields, "hint": hint, "error": type(error).__name__}}
        logging.getLogger("ratchet.jobs").error(message, extra=extra, exc_info=_options.verbose)
    else:
        if _options.verbose:
            trace = "".join(traceback.format_exception(error))
            click.echo(lines(logs.clean(trace)), err=True)
        what = "error" if known else "internal error"
        click.echo(lines(logs.clean(f"ratchet: {what}: {message}")), err=True)
        if hint:
            click.echo(lines(logs.clean(f"  {hint}")), err=True)
    return error.exit_code if isinstance(error, RatchetError) else EXIT_BUG


def _report(error: Exception) -> str:
    """Leave the traceback in a file and say how to report the bug."""
    with tempfile.NamedTemporaryFile(
        "w", prefix="ratchet-bug-", suffix=".txt", delete=False, encoding="utf-8"
    ) as file:
        file.write(f"{_version_text()}\npython {sys.version}\n\n")
        file.write(logs.clean("".join(traceback.format_exception(error))))
    return (
        f"This is a bug in Ratchet. Please report it with the file {file.name} "
        "(it contains no passwords). Nothing in the lake is harmed: starting again is safe."
    )


if __name__ == "__main__":
    main()

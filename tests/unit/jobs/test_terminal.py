"""What others wrote is shown to people, and obeyed by no terminal."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
import unicodedata

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from ratchet.core.errors import LakeError
from ratchet.core.patterns import TablePatterns, exclusion
from ratchet.jobs import cli
from ratchet.jobs.inspect.sql import _print_csv, _print_json
from ratchet.jobs.preflight.check import _Printer
from ratchet.jobs.preflight.finding import Finding
from ratchet.jobs.reporting import logs
from ratchet.jobs.reporting.terminal import dumped, in_json, lines, say, terminal, visible

HOSTILE = "a\x1b[2J\r\n06:00:00 all is well\x9b1m\u202edb\u2066\u2028\x07"
SHOWN = r"a\x1b[2J\r\n06:00:00 all is well\x9b1m\u202edb\u2066\u2028\x07"


def harmless(text: str) -> bool:
    odd = {one for one in text if unicodedata.category(one) in {"Cc", "Zl", "Zp", "Cs"}}
    turns = {one for one in text if unicodedata.bidirectional(one) in _TURNS}
    return not (odd - {"\n"}) and not turns


_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}


@given(st.text())
def test_any_text_becomes_one_harmless_line(text: str) -> None:
    assert harmless(visible(text))
    assert "\n" not in visible(text)
    assert harmless(lines(text))
    assert not any(line and line[0] != " " for line in lines(text).split("\n")[1:])


@given(st.text().filter(lambda text: not any("\ud800" <= one <= "\udfff" for one in text)))
def test_json_keeps_its_values(text: str) -> None:
    assert harmless(dumped({text: [text]}))
    assert json.loads(dumped({text: [text]})) == {text: [text]}
    pretty = json.dumps({"a": text}, indent=1, ensure_ascii=False)
    assert json.loads(in_json(pretty)) == {"a": text}
    assert harmless(in_json(pretty))


def test_csv_is_shown_on_a_terminal_and_kept_elsewhere(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A program gets each value as it is; a terminal is told of what it would obey."""
    names, row = ["a", f"b{HOSTILE}"], (1, HOSTILE)
    _print_csv(names, iter([row]))
    assert capsys.readouterr().out == f'a,"b{HOSTILE}"\n1,"{HOSTILE}"\n'
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    _print_csv(names, iter([row]))
    assert capsys.readouterr().out == f'a,"b{SHOWN}"\n1,"{SHOWN}"\n'


def test_json_of_a_query_is_harmless(capsys: pytest.CaptureFixture[str]) -> None:
    _print_json(["a", HOSTILE], iter([(1, HOSTILE), (2, "é")]))
    said = capsys.readouterr().out
    assert harmless(said)
    assert json.loads(said) == [{"a": 1, HOSTILE: HOSTILE}, {"a": 2, HOSTILE: "é"}]


def test_what_has_no_width_is_shown() -> None:
    """Two names that differ by it alone look alike otherwise."""
    assert (
        visible("a\u200bb\ufeffc\u2060\u00ad\U000e0041") == r"a\u200bb\ufeffc\u2060\xad\U000e0041"
    )
    assert json.loads(dumped("\U000e0041")) == "\U000e0041"
    joined = "\u0645\u06cc\u200c\u062e"  # Persian has it within words
    assert visible(joined) == joined


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_hint_excludes_the_table_that_it_names(table: str) -> None:
    """Copied from the terminal into the config; whatever the name is made of."""
    (pattern,) = yaml.safe_load(f"[{visible(exclusion(table))}]")
    assert not TablePatterns(("*", pattern)).matches(table)


def test_letters_of_all_scripts_stay() -> None:
    for text in ("Größe", "заказ", "注文", "שלום", "طلب", "😀", "a\u0301"):
        assert visible(text) == text


def test_lines_and_tables_show_it(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    console = terminal(soft_wrap=True, width=500)
    console.print(f"lake [bold]{HOSTILE}")
    table = Table("table", HOSTILE)
    table.add_row(HOSTILE, "1")
    console.print(table)
    out = capsys.readouterr().out
    assert out.startswith(f"{SHOWN}\nlake [bold]{SHOWN}\n")
    assert out.count(SHOWN) == 4
    assert harmless(out)


def test_findings_show_it(capsys: pytest.CaptureFixture[str]) -> None:
    printer = _Printer(as_json=False)
    printer.add([
        Finding(status="fail", place=HOSTILE, check="x", text=HOSTILE, mend=HOSTILE)
    ])  # fmt: skip
    out = capsys.readouterr().out
    assert out.count(SHOWN) == 3
    assert harmless(out)
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_record_is_one_harmless_line(form: logs.Format) -> None:
    stream = io.StringIO()
    logs.set_up(form=form, stream=stream)
    extra = {"fields": {"table": HOSTILE}}
    logging.getLogger("ratchet.jobs.x").warning("%s streams", HOSTILE, extra=extra)
    (line,) = stream.getvalue().splitlines()
    assert harmless(line)
    if form == "json":
        assert json.loads(line)["table"] == HOSTILE
    else:
        assert SHOWN in line
    logs.set_up()


def test_a_traceback_is_indented() -> None:
    stream = io.StringIO()
    logs.set_up(stream=stream)
    try:
        int(HOSTILE)
    except ValueError:
        logging.getLogger("ratchet.jobs.x").exception("odd")
    first, *more = stream.getvalue().splitlines()
    assert first.endswith("error: odd")
    assert all(line.startswith("  ") for line in more)
    assert harmless(stream.getvalue())
    logs.set_up()


def test_an_error_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up()
    cli.show_error(LakeError(HOSTILE, table=HOSTILE, hint=HOSTILE))
    err = capsys.readouterr().err
    assert harmless(err)
    first, *more = err.splitlines()
    assert first.startswith("ratchet: error: a")
    assert all(line.startswith("  ") for line in more)


def test_what_libraries_write_to_stderr_is_a_record_in_json(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tracebacks of threads stood between the lines of JSON."""
    logs.set_up(form="json")
    logs.hide(["s3cr3t-word"])

    def die() -> None:
        raise OSError("s3cr3t-word \x1b[2J")

    logging.getLogger("ratchet.jobs.x").info("one")
    hook, threading.excepthook = threading.excepthook, threading.__excepthook__
    try:
        thread = threading.Thread(target=die)
        thread.start()
        thread.join()
    finally:
        threading.excepthook = hook
    sys.stderr.write("half")
    logs.set_up()
    sys.stderr.write("text\n")
    *records, last = capsys.readouterr().err.splitlines()
    found = [json.loads(line) for line in records]
    assert last == "text"
    assert found[0]["message"] == "one"
    assert {one["logger"] for one in found[1:]} == {"stderr"}
    assert found[-2]["message"] == "OSError: *** \x1b[2J"
    assert found[-1]["message"] == "half"
    assert not sys.stderr.isatty()

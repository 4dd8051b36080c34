"""The config file: defaults, limits, and messages that say where and what."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ratchet.core.errors import ConfigError
from ratchet.core.patterns import TablePatterns, exclusion
from ratchet.core.shard import ShardId
from ratchet.jobs.config.config import SOURCE_KEYS, TOP_KEYS, VITESS_KEYS, Config, load_config
from ratchet.jobs.config.settings import SECTIONS, ShardConfig, VtgateSection, keys_of
from ratchet.jobs.config.sources import source_configs, vtgate_config
from ratchet.jobs.preflight.encryption import weak_gates
from ratchet.jobs.topology.vitess import Topology, with_shards

EXAMPLE = Path(__file__).parents[3] / "conf" / "example.yaml"
SECRET = "hunter2-and-more"
MINIMAL = """\
lake: ./lake
sources:
  shop:
    kind: binlog
    shards:
      "-": {host: db.example, user: ratchet, password: "${PW}"}
"""


def load(tmp_path: Path, text: str, **environment: str) -> Config:
    path = tmp_path / "ratchet.yaml"
    path.write_text(text)
    return load_config(path, {"PW": SECRET, **environment})


def failure(tmp_path: Path, text: str, **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **environment)
    message = f"{caught.value} {caught.value.hint}"
    assert SECRET not in message
    return message


def test_minimal_file_gets_defaults(tmp_path: Path) -> None:
    config = load(tmp_path, MINIMAL)
    assert config.lake == str(tmp_path / "lake")
    shard = config.shards[ShardId("shop", "-")]
    assert (shard.host, shard.port, shard.database, shard.tls) == (
        "db.example",
        3306,
        "shop",
        "auto",
    )
    assert shard.password == SECRET
    assert config.secrets == {SECRET}
    assert SECRET not in repr(config)
    assert config.sources["shop"].tables == TablePatterns(("*",), copies=True)
    assert config.merge.change_log_retention == 14 * 86400


def test_copies_are_captured_where_a_table_can_be_taken_from_them(tmp_path: Path) -> None:
    """Of one shard, unless somebody is to be asked first, or it is Vitess's."""

    def copies(*more: str) -> bool:
        return load(tmp_path, "\n".join([MINIMAL, *more])).sources["shop"].tables.copies

    assert copies()
    assert copies("    tables: ['*', '!x']")
    assert not copies("    schema_changes: stop")
    assert not copies("    vitess: true")
    other = MINIMAL.splitlines()[-1].replace('"-"', "b").replace("db.", "db2.")
    assert not copies(other), "two shards"


@pytest.mark.parametrize(
    ("text", "stopped"),
    [
        ("", ""),
        ("follow", ""),
        ("stop", "a,B,_a_new"),
        ("{stop: [a, B]}", "a,B"),
        ("{stop: ['*', '!a']}", "B,_a_new"),
        ("{stop: ['!a']}", "B,_a_new"),
        ("{}", ""),
    ],
)
def test_tables_that_a_schema_change_leaves_stopped(
    tmp_path: Path, text: str, stopped: str
) -> None:
    more = f"    schema_changes: {text}" if text else ""
    source = load(tmp_path, f"{MINIMAL}\n{more}").sources["shop"]
    assert ",".join(one for one in ("a", "B", "_a_new") if not source.follows(one)) == stopped
    folded = replace(source, tables=replace(source.tables, folded=True))
    assert folded.follows("b") == source.follows("B")


def test_example_loads_and_equals_the_defaults() -> None:
    """What the example says are the defaults, are."""
    config = load_config(EXAMPLE, {"SHOP_PASSWORD": SECRET})
    for name, kind in SECTIONS.items():
        if name != "spark":
            assert getattr(config, name) == kind()
    assert config.spark.conf == {"spark.sql.shuffle.partitions": "2"}


def test_example_names_every_key() -> None:
    text = EXAMPLE.read_text()
    keys = {*TOP_KEYS, *SOURCE_KEYS, *keys_of(ShardConfig)}
    keys |= {*VITESS_KEYS, *keys_of(VtgateSection)}
    for kind in SECTIONS.values():
        keys.update(keys_of(kind))
    missing = {key for key in keys if not re.search(rf"(?m)^\s*(#\s*)*{key}:", text)}
    assert missing == set()


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (("lake:", "lakee:"), ("ratchet.yaml:1", "'lakee'", "'lake'")),
        (("kind: binlog", "kind: binlogs"), (":4", "sources.shop.kind", "did you mean 'binlog'")),
        (("host:", "hots:"), (":6", "unknown key 'hots'", "did you mean 'host'")),
        (("user: ratchet,", ""), (":6", "'user' is missing")),
        (("host: db.example", "port: 70000, host: h"), ("port", "70000", "65,535")),
        (("host: db.example", "port: many, host: h"), ("a whole number", "'many'")),
        (("host: db.example", "tls: on, host: h"), ("'disabled' or", "'on'")),
        (("host: db.example", "host: ''"), ("host", "text is empty")),
        (("host: db.example", "host: h, tls_ca: conf"), ("there is no file",)),
        (
            ("host: db.example", "host: h, tls: preferred, tls_ca: ratchet.yaml"),
            ("no effect with",),
        ),
        (("host: db.example", "host: h, standbys: [a, 'b c']"), ("host or host:port",)),
        (("host: db.example", "host: h, standbys: ['a', 'a:3306']"), ("is listed twice",)),
        (('"-"', '"a/b"'), ("a shard's name",)),
        (("shop:", "_shop:"), ("must not begin with '_'",)),
        (("${PW}", "${NOT_SET}"), ("NOT_SET is not set", "export NOT_SET")),
        (("${PW}", "${1x}"), ("name of an environment variable",)),
        (("lake: ./lake", "lake: [a]"), ("a text is needed", "a list")),
        (("lake: ./lake", "lake:"), ("'lake' is missing or empty",)),
        (("lake: ./lake", "lake: a\nlake: b"), (":2", "twice")),
        (("    kind", "    tables: []\n    kind"), ("mirrors nothing",)),
        (("    kind", '    tables: ["a", "a"]\n    kind'), ("twice",)),
        (("    kind", '    tables: ["!"]\n    kind'), ("no pattern after",)),
        (("    kind", "    key: shard\n    kind"), ("'shard+primary' is needed",)),
        (("    kind: binlog", "    kind: binlog\n    shards: {}"), ("twice",)),
        (('"${PW}"', "[1]"), ("password", "not something else")),
    ],
)
def test_wrong_files(tmp_path: Path, change: tuple[str, str], parts: tuple[str, ...]) -> None:
    message = failure(tmp_path, MINIMAL.replace(*change))
    for part in parts:
        assert part in message


def test_where_no_source_is_asked_its_variables_need_not_be_set(tmp_path: Path) -> None:
    path = tmp_path / "ratchet.yaml"
    path.write_text(MINIMAL.replace("host: db.example", "port: '${NO}', host: '${NOT_SET}'"))
    assert load_config(path, {}, lake_only=True).lake == str(tmp_path / "lake")
    path.write_text(MINIMAL.replace("./lake", "${NOT_SET}"))
    with pytest.raises(ConfigError, match="NOT_SET is not set"):
        load_config(path, {}, lake_only=True)


@pytest.mark.parametrize(
    ("section", "part"),
    [
        ("capture: {round_secnds: 1}", "did you mean 'round_seconds'"),
        ("capture: {round_seconds: 1w}", "the units are ms, s, m, h, d"),
        ("capture: {round_seconds: 0}", "outside of"),
        ("capture: {round_bytes: 1TB}", "the units are B, KB, MB, GB"),
        ("capture: [1]", "a mapping"),
        ("merge: {deletion_vectors: maybe}", "true or false"),
        ("merge: {change_log_retention: 1s}", "outside of"),
        ("spark: {conf: {sql.x: 1}}", "begins with 'spark.'"),
        ("spark: {driver_memory: lots}", "2g"),
        ("types: {zero_dates: nul}", "did you mean 'null'"),
        ("merg: {}", "did you mean 'merge'"),
        ("capture: {server_id_base: 5_000_000_000}", "outside of"),
    ],
)
def test_wrong_sections(tmp_path: Path, section: str, part: str) -> None:
    assert part in failure(tmp_path, MINIMAL + section)


def test_sections_are_read(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        MINIMAL
        + "capture: {round_seconds: 500ms, round_bytes: 64MB, server_id_base: 7}\n"
        + "merge: {change_log_retention: 12h, deletion_vectors: off}\n"
        + "snapshot: {chunk_rows: 1000}\nspark: {conf: {spark.x.y: true}}\ntypes:\n",
    )
    assert (config.capture.round_seconds, config.capture.round_bytes) == (0.5, 64 << 20)
    assert config.capture.server_id_base == 7
    assert config.merge.change_log_retention == 12 * 3600
    assert config.merge.deletion_vectors is False
    assert config.snapshot.chunk_rows == 1000
    assert config.spark.conf == {"spark.x.y": "true"}


def test_a_value_from_the_environment_is_never_shown(tmp_path: Path) -> None:
    text = MINIMAL.replace("host: db.example", 'host: h, port: "${PW}"')
    assert "${PW}" in failure(tmp_path, text)
    assert "${PW}" in failure(tmp_path, MINIMAL + 'types: {zero_dates: "${PW}"}')
    assert "${PW}" in failure(tmp_path, MINIMAL + 'capture: {round_seconds: "${PW}"}')


def test_variables_may_hold_anything(tmp_path: Path) -> None:
    """What the environment says is a value, never YAML."""
    text = MINIMAL.replace("host: db.example", 'host: "${HOST}", port: "${PORT}"')
    shard = load(tmp_path, text, PORT="33060", HOST="x: {y}").shards[ShardId("shop", "-")]
    assert (shard.host, shard.port) == ("x: {y}", 33060)
    literal = MINIMAL.replace("${PW}", "$${PW}").replace("  shop:", "  shop: # ${UNSET}")
    assert load(tmp_path, literal).shards[ShardId("shop", "-")].password == "${PW}"


def test_names_are_texts_whatever_yaml_thinks(tmp_path: Path) -> None:
    text = MINIMAL.replace('"-"', "-80").replace("shop:", "no:")
    assert list(load(tmp_path, text).shards) == [ShardId("no", "-80")]
    number = MINIMAL.replace('"${PW}"', "0123")
    assert load(tmp_path, number).shards[ShardId("shop", "-")].password == "0123"


def test_duplicates_across_shards_and_sources(tmp_path: Path) -> None:
    second = '\n      "b": {host: DB.example, user: u}'
    assert "sources.shop.shards.-" in failure(tmp_path, MINIMAL.rstrip() + second)
    other = "  SHOP:\n    kind: binlog\n    shards: {x: {host: h, user: u}}\n"
    assert "letter case" in failure(tmp_path, MINIMAL + other)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "empty"),
        ("a: [", "config"),
        ("lake: 'x\n", "config"),
        ("x: !!python/object/apply:os.system ['true']", "unknown key"),
        ("&a [*a, *a]", "nested too deeply"),
        ("[" * 3000, "nested too deeply"),
        ("? [1]\n: 2", "plain text"),
        ("a: *nowhere", "undefined alias"),
        ("\t- x", "cannot start any token"),
        ("--- 1\n--- 2", "another document"),
    ],
)
def test_broken_yaml(tmp_path: Path, text: str, part: str) -> None:
    assert part in failure(tmp_path, text)


@pytest.mark.parametrize(
    ("shard", "part"),
    [
        ("{host: h, user: u, password:S3cret-77}", "a space belongs behind the colon"),
        ("{host: h, user: u, password: *S3cret-77}", "undefined alias"),
        ("{host: h, user: u, password: &S3cret-77 x, tls: *S3cret-78}", "undefined alias"),
        ("u:S3cret-77@h", "a mapping (key: value) is needed here"),
        ("{host: h, ? S3cret-77 and more : 1}", "unknown key (not shown)"),
    ],
)
def test_a_slip_in_yaml_shows_no_password(tmp_path: Path, shard: str, part: str) -> None:
    text = f"lake: ./lake\nsources:\n  shop: {{kind: binlog, shards: {{'-': {shard}}}}}\n"
    said = failure(tmp_path, text)
    assert part in said
    assert "S3cret" not in said


def test_anchors_cannot_explode(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert "too many entries" in failure(tmp_path, "\n".join(lines))


def test_anchors_serve_their_purpose(tmp_path: Path) -> None:
    text = """\
lake: s3a://bucket/lake/
sources:
  shop: {kind: binlog, shards: {"-": &one {host: h, user: u}}}
  wiki: {kind: binlog, shards: {"-": *one}}
"""
    config = load(tmp_path, text)
    assert config.lake == "s3a://bucket/lake"
    assert {shard.database for shard in config.shards.values()} == {"shop", "wiki"}


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(tmp_path / "nowhere.yaml", {})
    big = tmp_path / "big.yaml"
    big.write_text("#" * (1 << 20) + "#")
    with pytest.raises(ConfigError, match="too large"):
        load_config(big, {})
    big.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_config(big, {})


def test_absolute_and_home_lakes(tmp_path: Path) -> None:
    assert load(tmp_path, MINIMAL.replace("./lake", "/srv/lake")).lake == "/srv/lake"
    assert load(tmp_path, MINIMAL.replace("./lake", "~/lake")).lake == str(
        Path("~/lake").expanduser()
    )


def test_certificates_are_found_beside_the_config(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    text = MINIMAL.replace("host: db.example", "host: h, tls: verify_ca, tls_ca: ca.pem")
    assert load(tmp_path, text).shards[ShardId("shop", "-")].tls_ca == str(tmp_path / "ca.pem")
    lone = MINIMAL.replace("host: db.example", "host: h, tls: required, tls_cert: ca.pem")
    assert "together" in failure(tmp_path, lone)


VITESS = """\
lake: ./lake
sources:
  commerce:
    kind: vitess
    vtgate: {host: vtgate.example, user: ratchet, password: "${PW}"}
"""


def test_a_vitess_keyspace_needs_a_vtgate_only(tmp_path: Path) -> None:
    config = load(tmp_path, VITESS)
    source = config.sources["commerce"]
    assert source.vtgate is not None
    assert (source.kind, source.tablet_type, dict(source.shards)) == ("vitess", "primary", {})
    assert (source.vtgate.grpc_port, source.vtgate.mysql_port) == (15_991, 15_306)
    assert (source.vtgate.tls, source.key) == ("auto", "primary")
    assert config.secrets == {SECRET}
    assert SECRET not in repr(config)


def test_its_shards_are_reached_through_the_vtgate(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("")
    given = (
        VITESS.replace("user:", "tls: required, tls_ca: ca.pem, user:") + "    tablet_type: replica"
    )
    config = load(tmp_path, given)
    found = {"commerce": Topology(serving=("-80", "80-"), database="vt_commerce")}
    located = with_shards(config, {"commerce": found["commerce"].serving}, found)
    low, high = source_configs(located).values()
    assert (low.host, low.port, low.database) == ("vtgate.example", 15_306, "vt_commerce")
    assert (low.target, high.target) == ("commerce:-80@replica", "commerce:80-@replica")
    assert (low.tls, low.tls_ca) == ("verify_identity", str(tmp_path / "ca.pem"))
    gate = vtgate_config(located.sources["commerce"])
    assert gate is not None
    assert (gate.port, gate.tls, gate.tablet_type) == (15_991, "required", "replica")
    assert gate.tls_ca == str(tmp_path / "ca.pem")
    assert gate.password == low.password == SECRET
    assert vtgate_config(load(tmp_path, MINIMAL).sources["shop"]) is None


@pytest.mark.parametrize(
    ("host", "given", "mysql", "encrypts"),
    [
        ("vtgate.example", "", "verify_identity", True),
        ("127.0.0.1", "", "disabled", False),
        ("localhost", "tls_ca: ca.pem, ", "verify_identity", True),
        ("vtgate.example", "tls: disabled, ", "disabled", False),
    ],
)
def test_a_vtgate_elsewhere_is_verified_unless_told_otherwise(
    tmp_path: Path, host: str, given: str, mysql: str, *, encrypts: bool
) -> None:
    (tmp_path / "ca.pem").write_text("")
    text = VITESS.replace("vtgate.example", host).replace("user:", f"{given}user:")
    config = load(tmp_path, text)
    gate = vtgate_config(config.sources["commerce"])
    assert gate is not None
    assert gate.encrypts is encrypts
    located = with_shards(config, {"commerce": ("-",)}, {})
    (shard,) = source_configs(located).values()
    assert shard.tls_mode == mysql
    warned = [one.text for one in weak_gates(config)]
    assert len(warned) == (given == "tls: disabled, ")
    assert all("can read rows" in one for one in warned)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (("vtgate:", "shards:"), "'shards'"),
        (("kind: vitess", "kind: binlog"), "'vtgate'"),
        (("user: ratchet", "name: ratchet"), "'name'"),
        (("user: ratchet", "user: ratchet, grpc_port: 0"), "grpc_port"),
        (("user: ratchet", "user: rätchet"), "printable ASCII"),
        (("user: ratchet", "user: ratchet, tls: preferred"), "preferred"),
        (("user: ratchet", "user: ratchet, tls_ca: ca.pem"), "ca.pem"),
        (("    vtgate", "    tablet_type: master\n    vtgate"), "master"),
    ],
)
def test_wrong_vitess_keyspaces(tmp_path: Path, change: tuple[str, str], part: str) -> None:
    assert part in failure(tmp_path, VITESS.replace(*change))


def test_a_password_that_grpc_cannot_carry_is_not_shown(tmp_path: Path) -> None:
    message = failure(tmp_path, VITESS, PW="pässword-of-ours")
    assert "printable ASCII" in message
    assert "pässword" not in message


BY_FILE = MINIMAL.replace('"${PW}"', "{file: secret}")


def test_a_password_from_a_file(tmp_path: Path) -> None:
    for text in (f"{SECRET}\n", f"{SECRET}\r\n", SECRET):
        (tmp_path / "secret").write_bytes(text.encode())
        config = load(tmp_path, BY_FILE)
        assert config.secrets == {SECRET}
        assert config.secret_files == (tmp_path / "secret",)
    (tmp_path / "secret").write_text(f" {SECRET} \n\n")
    assert load(tmp_path, BY_FILE).secrets == {f" {SECRET} \n"}, "all but the line's end"
    assert load(tmp_path, MINIMAL).secret_files == ()


@pytest.mark.parametrize(
    ("data", "text", "part"),
    [
        (None, BY_FILE, "cannot be read: No such file"),
        (b"", BY_FILE, "is empty"),
        (b"\n", BY_FILE, "is empty"),
        (b"x" * 5000, BY_FILE, "not a password"),
        (b"\xff", BY_FILE, "not UTF-8"),
        (b"x", BY_FILE.replace("file:", "fiel:"), "did you mean 'file'"),
        (b"x", BY_FILE.replace("{file: secret}", "{}"), "'file' is missing"),
    ],
)
def test_a_file_without_a_password(
    tmp_path: Path, data: bytes | None, text: str, part: str
) -> None:
    if data is not None:
        (tmp_path / "secret").write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text)
    assert part in str(caught.value) + caught.value.hint
    if data is None:
        path = tmp_path / "ratchet.yaml"
        assert load_config(path, {}, lake_only=True).secrets == frozenset(), "none is needed"


@pytest.mark.parametrize(
    ("given", "found"), [("null", None), ('"077"', 0o077), ("027", 0o027), ("0002", 0o002)]
)
def test_the_lakes_umask(tmp_path: Path, given: str, found: int | None) -> None:
    assert load(tmp_path, f"lake_umask: {given}\n{MINIMAL}").lake_umask == found


@pytest.mark.parametrize("given", ["77", "rwx", "0o77", "088", '"700"', "[0]"])
def test_no_umask(tmp_path: Path, given: str) -> None:
    with pytest.raises(ConfigError, match="umask"):
        load(tmp_path, f"lake_umask: {given}\n{MINIMAL}")


def test_a_folder_that_is_not_utf_8_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrow and Java take no such path: it was found out in the middle of a command."""
    odd = tmp_path / os.fsdecode(b"c\xff")
    odd.mkdir()
    assert "is not UTF-8" in failure(odd, MINIMAL)
    monkeypatch.chdir(odd)
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_config(Path("ratchet.yaml"), {"PW": SECRET})
    (tmp_path / "link").symlink_to(odd / "ratchet.yaml")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_config(tmp_path / "link", {"PW": SECRET})
    monkeypatch.setenv("HOME", str(odd))
    assert "lake: the path is not UTF-8" in failure(tmp_path, MINIMAL.replace("./lake", "~/lake"))


@pytest.mark.parametrize("name", ["a${PW}b", "$${x}", "${", 'fx"\\', "a\u0085\x7f b", "!#: *?["])
def test_a_printed_exclusion_can_be_put_into_the_config(tmp_path: Path, name: str) -> None:
    """Whatever the table's name is made of; no variable is put into it."""
    config = load(tmp_path, f"{MINIMAL}    tables: [{exclusion(name)}]\n")
    tables = config.sources["shop"].tables
    assert not tables.matches(name)
    assert tables.matches("other")

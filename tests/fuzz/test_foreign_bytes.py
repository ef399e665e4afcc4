"""Parsers of what others have written: any input gives a value, or the error that the parser's docstring names.

`make test` tries 100 inputs of each, always the same. `--hypothesis-profile=fuzz` tries 5,000 new ones of each, and
`python -m tests.fuzz` lets atheris look for inputs that reach new lines.
"""

from __future__ import annotations

import json
import logging
import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st

from eos_client.cli.failures import CommandLineError
from eos_client.cli.printable import escaped, printable, shell_word
from eos_client.cli.redriven_letters import error_of, origin_of, redriven
from eos_client.cli.settings import client_settings, parse_settings
from eos_client.clients.dead_letters import LetterHeader, letters_for
from eos_client.config.client_settings import check_settings
from eos_client.confluent.client_log import ClientLog
from eos_client.confluent.group_metadata import GenerationReader, decode
from eos_client.core.batch_ledger import METADATA_BYTES_MAX, decode_entry
from eos_client.core.batch_ledger_start import decode_record
from eos_client.core.error_report import ErrorReport
from eos_client.core.model import CommittedOffset, GroupGeneration, InputPartition, InputPosition, Outcome
from eos_client.core.outcome_resolution import AttemptToken, resolve_outcome
from eos_client.core.output_topics import is_topic_name
from eos_client.errors import ConfigurationError, EmbeddedKafkaError, LedgerUnreadableError
from eos_client.integration.otel import TransactionTracing
from eos_client.integration.sql.header_texts import decode_headers, encode_headers
from eos_client.testing import maven_settings, record
from eos_client.testing.readiness import _NOTHING_READABLE, _is_live_member

DEEP = 100_000
OPENED = "[" * METADATA_BYTES_MAX
ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner))
OFFSETS = st.integers(0, 2**63 - 1)


def json_with(*names):
    """Texts: JSON objects with some of these names, any other JSON, and what is none."""
    objects = st.dictionaries(st.sampled_from(names) | st.text(max_size=5), JSON, max_size=len(names))
    return (objects | JSON).map(json.dumps) | st.text(max_size=80)


# -- from brokers and other members of the group -----------------------------------------------------------------------


METADATA = st.builds(
    lambda generation, parts, end: b"CGMDv2:" + struct.pack("=i", generation) + b"\0".join(parts) + end,
    st.integers(-(2**31), 2**31 - 1),
    st.lists(st.binary(max_size=10), max_size=4),
    st.sampled_from([b"", b"\0", b"\0\1"]),
)


@given(METADATA | st.binary(max_size=60) | st.none() | st.text(max_size=8), st.none() | st.text(max_size=8))
def test_any_group_metadata_is_a_generation_and_unknown_ones_are_told_apart(metadata, member):
    reader = GenerationReader()
    found = reader.read(metadata, lambda: member)
    assert found == (decode(metadata) or found)
    assert reader.read(metadata, lambda: member) == found
    if decode(metadata) is None:
        assert reader.read(b"another", lambda: member) != found or found.member_id == ""


@given(OFFSETS, json_with("eos", "query", "slots", "fn", "topic", "run", "rows", "sum") | st.none())
@example(0, OPENED)
@example(0, '{"eos":1,"query":"q","slots":1e999,"fn":1,"topic":"t","run":1}')
def test_any_committed_metadata_is_a_ledger_entry_or_unreadable(offset, metadata):
    with suppress(LedgerUnreadableError):
        found = decode_entry(offset, metadata)
        assert found.is_bare or decode_entry(offset, found.encode()) == found


@given(json_with("eos", "query", "next", "rows", "sum"))
@example(OPENED)
@example('{"eos":1,"query":"q","next":1e999}')
@example('{"eos":1,"query":"q","next":-1}')
def test_any_line_beside_a_checkpoint_is_a_record_of_its_run(line):
    found = decode_record(3, line)
    assert found.run == 3
    assert found.next_batch is None or found.next_batch >= 0


TOKEN, OURS = AttemptToken("8f3a", 7), GroupGeneration(3, "member-1")
FOREIGN_METADATA = st.text(max_size=30) | st.integers(0, 20).map(lambda n: str(AttemptToken("8f3a", n)))


@given(st.lists(st.tuples(OFFSETS, FOREIGN_METADATA), min_size=1, max_size=3), OFFSETS)
def test_offsets_of_others_never_confirm_a_commit(committed, sent):
    partitions = [InputPartition("orders", number) for number in range(len(committed))]
    found = {where: CommittedOffset(*each) for where, each in zip(partitions, committed, strict=True)}
    attempted = {where: InputPosition(0, sent, OURS) for where in partitions}
    outcome = resolve_outcome(attempted, {}, found, TOKEN, {})
    assert (outcome is Outcome.COMMITTED) == any(metadata == str(TOKEN) for _, metadata in committed)


@given(st.binary(max_size=80), st.text(max_size=10), st.integers(0, 3))
def test_any_answer_of_a_socket_is_a_live_broker_or_none(answer, cluster_id, node_id):
    with suppress(*_NOTHING_READABLE):
        assert _is_live_member(answer, cluster_id, node_id) in {True, False}


SILENT = logging.getLogger("tests.fuzz.silent")
SILENT.disabled = True
LINES = st.text(max_size=60) | st.builds(
    "{}{}: {}{}".format,
    st.sampled_from(["", "[thrd:main]: ", "[thrd:"]),
    st.text(max_size=10),
    st.sampled_from(
        ["Broker changed state UP -> DOWN", "Failed (after 3ms in state UP)", "registered with transaction"]
    ),
    st.text(max_size=10),
)
FACILITIES = st.sampled_from(["ADDPARTS", "GETPID", "IMPLICITACK", "TXNERR", "STATE", "FAIL", "REQTMOUT"]) | st.text()


@given(st.lists(st.tuples(st.integers(0, 60), FACILITIES, LINES), max_size=5))
def test_any_line_of_the_client_librarys_log_is_read(lines):
    log = ClientLog({"logger": SILENT})
    for level, facility, line in lines:
        log.log(level, "%s [%s] %s", facility, "rdkafka#producer-1", line)
    assert isinstance(log.failed_code, str)


# -- from records ------------------------------------------------------------------------------------------------------


NAMES = [name for letter, name in vars(LetterHeader).items() if letter.isupper()]
HISTORY = ["eos.redrives", "eos.redriven.origin", "eos.redriven.error"]
CONTENTS = st.none() | st.binary(max_size=12) | st.sampled_from([b"0", b"7", b"-1", b"orders", b"x" * 300])
HEADERS = st.lists(st.tuples(st.sampled_from(NAMES + HISTORY) | st.text(max_size=4), CONTENTS), max_size=12)
HEADERS_OF_RECORDS = st.lists(st.tuples(st.sampled_from(NAMES) | st.text(max_size=4), CONTENTS), max_size=12)
TIMES_MS = st.just(-1) | st.integers(1, 2**53)  # librdkafka takes 0 for the current time, so it is refused


@given(HEADERS, CONTENTS, CONTENTS, st.none() | st.just("elsewhere"))
def test_any_record_is_a_letter_that_can_be_sent_back_or_says_why_not(headers, key, value, target):
    letter = record(topic="orders.dead", key=key, value=value, headers=headers)
    assert isinstance(error_of(letter), str)
    if not origin_of(dict(headers)):
        return  # no letter, which `redrive` leaves where it is
    with suppress(ValueError):
        output = redriven(letter, target)
        assert is_topic_name(str(output.topic))
        assert output.topic != letter.topic()
        assert (output.key, output.value) == (key, value)
        assert output.partition is None or output.partition >= 0
        assert output.timestamp_ms is None or output.timestamp_ms > 0


@given(HEADERS_OF_RECORDS, CONTENTS, CONTENTS, TIMES_MS, st.text(max_size=20))
def test_whatever_a_record_holds_its_letter_brings_it_back(headers, key, value, timestamp_ms, error):
    failed = record(
        topic="orders", partition=2, offset=9, key=key, value=value, headers=headers, timestamp_ms=timestamp_ms
    )
    whole, *_ = letters_for("orders.dead", failed, ErrorReport(error), 1)
    written: Any = whole.headers
    as_read = [(name, None if text is None else bytes(text)) for name, text in written]
    letter = record(topic="orders.dead", key=key, value=value, headers=as_read)
    output = redriven(letter, None)
    assert (output.topic, output.partition, output.key, output.value) == ("orders", 2, key, value)
    assert output.timestamp_ms == (None if timestamp_ms == -1 else timestamp_ms)


TRACING = st.sampled_from(["traceparent", "tracestate", "baggage"])
IDENTITIES = st.builds("{}-{}-{}-{}".format, st.text(max_size=3), *(st.integers(0).map("{:x}".format),) * 3)
CARRIED = st.lists(st.tuples(TRACING, IDENTITIES.map(str.encode) | CONTENTS), max_size=4)


@given(CARRIED)
def test_any_headers_of_a_trace_are_a_span_or_none(headers):
    found = TransactionTracing("billing")._context_of(headers)
    assert found is None or found.is_valid


TEXTS = st.text(st.characters(exclude_categories=())) | st.text(
    st.characters(categories=["Cc", "Cf", "Cs"]), max_size=9
)


@given(st.binary(max_size=60) | TEXTS)
def test_any_content_is_printed_on_one_line_without_control_characters(content):
    if isinstance(content, bytes):
        assert escaped(content).isprintable()
    else:
        assert printable(content).isprintable()
        assert shell_word(content).isprintable()


# -- from tables and files ---------------------------------------------------------------------------------------------


HEADER_TEXTS = st.lists(st.tuples(st.text(max_size=5), JSON), max_size=3).map(json.dumps) | JSON.map(json.dumps)


@given(HEADER_TEXTS | st.text(max_size=40) | st.binary(max_size=40))
@example("[" * DEEP)
@example('[["name", {"base64": 1}]]')
@example('[["name", {"base64": "ä"}]]')
def test_any_column_of_headers_is_headers_or_a_value_error(text):
    with suppress(ValueError):
        for name, value in decode_headers(text):
            assert isinstance(name, str)
            assert value is None or isinstance(value, bytes)


@given(st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=12)), max_size=5))
def test_headers_come_back_from_a_column_as_they_were(headers):
    assert decode_headers(encode_headers(headers)) == headers


TOML_KEYS = st.sampled_from(
    ["linger.ms", "sasl", "sasl.password", "bootstrap.servers", "group.id", '"a b"', "on_x", "x"]
)
TOML_VALUES = st.sampled_from(["1", "'x'", "true", "nan", "inf", "1979-05-27", "[1]", "{a=1}", "0x" + "f" * 5000, ""])
TOML = st.lists(st.builds("{} = {}".format, TOML_KEYS, TOML_VALUES), max_size=4).map("\n".join)


def settings_of(content: bytes):
    with patch.object(Path, "read_text", lambda _file, encoding: content.decode(encoding)):
        return client_settings([], Path("job.toml"))


@given(TOML.map(str.encode) | st.text(max_size=60).map(str.encode) | st.binary(max_size=60))
@example(b"x = 1" + b"0" * 400)
@example(b"x = 0x" + b"f" * 5000)
@example(b"x = " + b"[" * DEEP)
@example(b"x" + b".x" * 5000 + b" = 1")
def test_any_file_of_settings_is_settings_or_an_error(content):
    with suppress(CommandLineError, ConfigurationError):
        assert all(isinstance(text, str) for pair in settings_of(content).items() for text in pair)


PAIRS = st.lists(st.text(max_size=12) | st.builds("{}={}".format, TOML_KEYS, st.text(max_size=8)), max_size=4)


@given(PAIRS)
def test_any_options_are_settings_or_an_error(pairs):
    with suppress(CommandLineError, ConfigurationError):
        check_settings(parse_settings(pairs))


XML = st.lists(st.sampled_from(["mirrors", "mirror", "mirrorOf", "url", "id", "server", "servers"]), max_size=4)
XML_FILES = st.builds(
    lambda names, text: "".join(f"<{n}>" for n in names) + text + "".join(f"</{n}>" for n in reversed(names)),
    XML.map(lambda names: ["settings", *names]),
    st.text(max_size=12),
)


@given(XML_FILES.map(str.encode) | st.binary(max_size=60))
@example(b"<a>" * DEEP)
def test_any_settings_file_of_maven_is_a_repository_or_an_error(content):
    with (
        patch.dict(os.environ, {"EOS_CLIENT_MAVEN_REPOSITORY": ""}),
        patch.object(Path, "home", lambda: Path("/nowhere")),
        patch.object(Path, "read_bytes", lambda _file: content),
        suppress(EmbeddedKafkaError),
    ):
        assert str(maven_settings.chosen_repository())

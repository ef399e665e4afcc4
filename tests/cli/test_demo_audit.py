import json
from typing import Any

import pytest

from eos_client.cli.demo.job.invoice import invoice_of
from eos_client.cli.demo.verdict import Findings, OutputAudit, checksum_in, receipt_audit, receipt_of

LINES = {0: [b"first", b"same", b"same"], 1: [b"other"]}
CLEAN = Findings(inputs=4, outputs=4)
COMPLETE = [(0, 0), (0, 1), (0, 2), (1, 0)]


def audited(visible: Any, *, changed: Any = frozenset()) -> Findings:
    audit = OutputAudit()
    for partition, lines in LINES.items():
        for offset, line in enumerate(lines):
            audit.expect(partition, offset, line)
    for partition, offset in visible:
        value = b"tampered" if (partition, offset) in changed else invoice_of(LINES[partition][offset])
        headers = {"input.partition": str(partition).encode(), "input.offset": str(offset).encode()}
        audit.check_output(partition, headers, value)
    return audit.findings()


def counts(findings: Any) -> Any:
    return {
        name: getattr(findings, name)
        for name in ("missing", "doubled", "out_of_order", "altered", "of_unknown_origin")
        if getattr(findings, name)
    }


def test_every_input_once_and_in_order_is_clean_even_with_equal_lines() -> None:
    findings = audited(COMPLETE)
    assert findings == CLEAN


def test_a_lost_record_is_found_and_named() -> None:
    findings = audited([(0, 0), (0, 2), (1, 0)])
    assert counts(findings) == {"missing": 1}
    assert findings.examples == ["input 0@1 has no visible output"]


def test_a_doubled_record_is_found_and_named() -> None:
    findings = audited([*COMPLETE[:3], (0, 2), (1, 0)])
    assert counts(findings) == {"doubled": 1}
    assert findings.examples == ["input 0@2 is visible again"]


def test_two_equal_lines_do_not_hide_one_lost_and_one_doubled() -> None:
    assert counts(audited([(0, 0), (0, 1), (0, 1), (1, 0)])) == {"missing": 1, "doubled": 1}


def test_swapped_records_are_out_of_order() -> None:
    findings = audited([(0, 0), (0, 2), (0, 1), (1, 0)])
    assert counts(findings) == {"out_of_order": 1}


def test_partitions_may_interleave() -> None:
    assert audited([(1, 0), (0, 0), (0, 1), (0, 2)]) == CLEAN


def test_an_altered_output_is_found() -> None:
    assert counts(audited(COMPLETE, changed={(0, 1)})) == {"altered": 1}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"input.partition": b"0"},
        {"input.partition": b"x", "input.offset": b"0"},
        {"input.partition": b"9", "input.offset": b"0"},
        {"input.partition": b"0", "input.offset": b"3"},
        {"input.partition": b"0", "input.offset": b"-1"},
    ],
)
def test_an_output_that_no_input_explains_is_found(headers: Any) -> None:
    audit = OutputAudit()
    audit.expect(0, 0, b"first")
    audit.check_output(0, headers, b"x")
    assert counts(audit.findings())["of_unknown_origin"] == 1


def test_a_gap_in_the_input_is_refused_rather_than_judged() -> None:
    audit = OutputAudit()
    audit.expect(0, 0, b"first")
    with pytest.raises(ValueError, match="goes from offset 0 to 2"):
        audit.expect(0, 2, b"third")


def test_the_examples_are_few() -> None:
    assert len(audited([(0, 0)] * 50).examples) == 5


@pytest.mark.parametrize(
    ("findings", "lines", "loaded", "behind"),
    [
        (Findings(inputs=4, outputs=4, missing=1), 4, 4, {}),
        (Findings(inputs=4, outputs=4, doubled=1), 4, 4, {}),
        (Findings(inputs=4, outputs=4, of_unknown_origin=1), 4, 4, {}),
        (Findings(inputs=4, outputs=4, out_of_order=1), 4, 4, {}),
        (Findings(inputs=4, outputs=4, altered=1), 4, 4, {}),
        (CLEAN, 4, 5, {}),
        (CLEAN, 5, 4, {}),
        (CLEAN, 4, 4, {2: (10, 12)}),
    ],
    ids=["missing", "doubled", "unknown", "reordered", "altered", "loaded twice", "not all loaded", "offsets behind"],
)
def test_one_wrong_thing_is_enough_for_the_verdict(findings: Any, lines: int, loaded: int, behind: Any) -> None:
    checks = findings.worker_checks(lines, loaded, behind)
    assert [holds for _claim, holds, _figures in checks].count(False) == 1


def test_outputs_of_aborted_transactions_are_no_fault() -> None:
    checks = Findings(inputs=4, outputs=4, hidden=137).worker_checks(4, 4, {})
    assert all(holds for _claim, holds, _figures in checks)


def of_stream(outputs: Any) -> Findings:
    """Receipts of three records, two of them with one key; ``outputs``: offset, key and checksum of each."""
    audit = receipt_audit()
    for offset, line in enumerate((b"a1", b"a2", b"b1")):
        audit.expect(0, offset, line)
    for offset, key, checksum in outputs:
        headers = {"source.partition": b"0", "source.offset": b"%d" % offset}
        audit.check_output(3, headers, json.dumps({"sha256": checksum.decode()}).encode(), key)
    return audit.findings()


A1, A2, B1 = ((offset, key, receipt_of(line)) for offset, (key, line) in enumerate(
    ((b"a", b"a1"), (b"a", b"a2"), (b"b", b"b1"))
))  # fmt: skip


@pytest.mark.parametrize(
    ("outputs", "wrong"),
    [
        ((A1, A2, B1), {}),
        ((B1, A1, A2), {}),
        ((A2, A1, B1), {"out_of_order": 1}),
        ((A1, B1), {"missing": 1}),
        ((A1, A2, B1, B1), {"doubled": 1}),
        ((A1, A2, (2, b"b", b"0")), {"altered": 1}),
    ],
    ids=["as it was", "keys mixed", "a key swapped", "lost", "doubled", "altered"],
)
def test_a_stream_is_judged_by_its_receipts_and_each_key_by_its_order(outputs: Any, wrong: Any) -> None:
    assert counts(of_stream(outputs)) == wrong


@pytest.mark.parametrize("value", [b"no json", b"[]", b"{}"])
def test_what_is_no_receipt_carries_no_checksum(value: bytes) -> None:
    assert checksum_in(value) == b""

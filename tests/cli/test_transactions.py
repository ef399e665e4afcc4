"""`eos-client txn` where no broker is needed: what is looked at, what is refused, and what is said of an outcome."""

import json
import subprocess
import sys
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import pytest

from eos_client.cli import transactions as commands
from eos_client.cli.failures import CommandLineError
from eos_client.cli.settings import ClusterAccess
from eos_client.cli.transactions import end_transaction, list_transactions, shown_age, survey
from eos_client.core.hanging_transactions import KnownTransaction, OpenTransaction, TransactionStatus
from eos_client.errors import ClusterUnavailableError, ClusterUnfitError

ACCESS = ClusterAccess(bootstrap_servers="127.0.0.1:1")
LATE = OpenTransaction("orders", 1, 4001, 0, 2, 17, last_timestamp_ms=0)
OWN = OpenTransaction("orders", 0, 4000, 3, 2, 5, last_timestamp_ms=0)
KNOWN = KnownTransaction("billing-0", 1, 4000, "Ongoing", 3, 60_000, 0, frozenset({("orders", 0)}))
RESTING = KnownTransaction("billing-9", 1, 4009, "CompleteCommit")


class Transactions:
    """What `TransactionsAdmin` answers, look after look; an abort ends the transaction unless it is ``stubborn``."""

    def __init__(self, *looks: Any, known: Any = (KNOWN, RESTING), sees_all_ids: bool = True) -> None:
        self.looks, self.ids, self.all_ids = list(looks), list(known), sees_all_ids
        self.unread: dict[str, str] = {}
        self.aborted: list[OpenTransaction] = []
        self.error: Exception | None = None
        self.stubborn = False

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def open_on(self, partition_counts: Any) -> Any:
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        gone = () if self.stubborn else self.aborted
        return [each for each in look if each.topic in partition_counts and each not in gone], self.unread

    def known(self) -> Any:
        return self.ids

    def describe(self, transactional_id: str) -> Any:
        return next((each for each in self.ids if each.transactional_id == transactional_id), None)

    def sees_all_ids(self) -> bool:
        return self.all_ids

    def abort_on_partition(self, transaction: OpenTransaction) -> None:
        self.aborted.append(transaction)
        if self.error:
            raise self.error


class Cluster(AbstractContextManager["Cluster"]):
    def __init__(self, *_: Any, **__: Any) -> None:
        self.brokers = {1: "127.0.0.1:1"}

    def __exit__(self, *_: object) -> None:
        """Nothing is connected."""

    def cluster(self) -> Any:
        return self

    def broker_settings(self, _broker_id: int) -> dict[str, str]:
        return {}

    def partition_counts(self) -> dict[str, int]:
        return {"orders": 2}

    def topics(self, names: Any) -> Any:
        return {name: self if name == "orders" else None for name in names}

    partition_count = 2


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let the commands find these transactions."""

    def on(transactions: Transactions) -> Transactions:
        monkeypatch.setattr(commands, "ClusterAdmin", Cluster)
        monkeypatch.setattr(commands, "transactions_admin", lambda _access: transactions)
        return transactions

    return on


def statuses(transactions: Any) -> Any:
    return survey(Cluster(), transactions, ["orders"]).found  # type: ignore[arg-type]


def test_a_transaction_that_nobody_lists_hangs_if_it_is_still_open_at_a_second_look() -> None:
    both = [OWN, LATE]
    assert statuses(Transactions(both)) == ((OWN, TransactionStatus.ONGOING), (LATE, TransactionStatus.HANGING))
    assert statuses(Transactions(both, [OWN])) == ((OWN, TransactionStatus.ONGOING),)
    began_anew = replace(LATE, start_offset=18)
    assert statuses(Transactions(both, [OWN, began_anew])) == ((OWN, TransactionStatus.ONGOING),)


def test_nothing_is_called_hanging_that_may_be_of_an_id_that_cannot_be_seen(on: Any, capsys: Any) -> None:
    on(Transactions([LATE], sees_all_ids=False))
    list_transactions(ACCESS, as_json=True)
    listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(each["state"], each["hanging"]) for each in listed] == [("Ongoing", False), ("Hidden", None)]
    list_transactions(ACCESS)
    assert capsys.readouterr().out.splitlines()[-1].startswith("      -> it may be of an id that this user may not see")
    with pytest.raises(CommandLineError, match=r"orders\[1\]@17 is not known to hang: no transactional id that this"):
        end_transaction(ACCESS, ("orders", 1, 17), None, force=False)


def test_topics_that_were_not_looked_at_are_named(on: Any, capsys: Any) -> None:
    on(Transactions([])).unread = {"secret": "the cluster would not: TOPIC_AUTHORIZATION_FAILED"}
    list_transactions(ACCESS, every=True)
    printed = capsys.readouterr()
    assert printed.out.splitlines()[1].split() == [
        "CompleteCommit",
        "billing-9",
        "producer",
        "4009",
        "coordinator",
        "1",
    ]
    assert printed.err == "eos-client: secret was not looked at: the cluster would not: TOPIC_AUTHORIZATION_FAILED\n"


def test_no_transactional_id_forges_a_line_or_reaches_the_terminal_as_it_is(on: Any, capsys: Any) -> None:
    id_, places = "x\nHanging  \x1b[8m; rm", frozenset({("orders", 0), ("t\x1b", 0)})
    forged = replace(KNOWN, transactional_id=id_, partitions=places)
    on(Transactions([replace(LATE, topic="a b"), OWN], known=[forged]))
    with pytest.raises(CommandLineError) as refused:
        end_transaction(ACCESS, ("orders", 0, 5), None, force=False)
    assert r"--transactional-id $'x\x0aHanging  \x1b[8m; rm'. --force" in str(refused.value)
    on(Transactions([OWN], known=[forged])).unread = {"s\x1b": "forbidden"}
    list_transactions(ACCESS)
    printed = capsys.readouterr()
    assert printed.out.startswith(r"Ongoing        x\nHanging  \x1b[8m; rm  open for")
    (line,) = printed.out.splitlines()
    assert line.isprintable()
    assert printed.err.startswith(r"eos-client: s\x1b was not looked at")


def test_an_id_is_shown_escaped_where_its_transaction_was_ended(on: Any, capsys: Any, monkeypatch: Any) -> None:
    odd = replace(KNOWN, transactional_id="x\n\x1b[8m", partitions=frozenset({("t\x1b", 0)}))
    transactions = on(Transactions([OWN], known=[odd]))
    monkeypatch.setattr(commands, "_fence", lambda *_: transactions.ids.clear())
    end_transaction(ACCESS, (None, None, None), odd.transactional_id, force=False)
    assert capsys.readouterr().out == r"aborted x\n\x1b[8m, producer 4000 epoch 3: t\x1b[0]" + "\n"


def test_a_command_to_copy_quotes_its_arguments() -> None:
    assert "--topic 'a; b' --partition" in commands.abort_command("a; b", 1, 17)


def test_of_named_topics_only_their_transactions_are_listed(on: Any, capsys: Any) -> None:
    elsewhere = replace(KNOWN, transactional_id="other", producer_id=4002, partitions=frozenset({("invoices", 0)}))
    on(Transactions([OWN], known=[KNOWN, elsewhere, RESTING]))
    list_transactions(ACCESS, ["orders"], as_json=True, every=True)
    (listed,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert listed["transactional_id"] == "billing-0"


def test_where_nothing_is_open_the_list_says_so(on: Any, capsys: Any) -> None:
    on(Transactions([], known=[RESTING]))
    list_transactions(ACCESS)
    list_transactions(ACCESS, as_json=True)
    assert capsys.readouterr().out == "no open transaction\n"


@pytest.mark.parametrize(
    ("place", "transactional_id", "message"),
    [
        ((None, None, None), None, "give --topic, --partition and --start-offset, or --transactional-id alone"),
        (("orders", 0, None), None, "give --topic, --partition and --start-offset"),
        (("orders", 0, 5), "billing-0", "or --transactional-id alone"),
        (
            ("orders", 1, 5),
            None,
            r"no open transaction begins at orders\[1\]@5; those that are open there begin at: 17",
        ),
        (("orders", 0, 5), None, "it is of transactional id 'billing-0', whose coordinator will end it"),
        ((None, None, None), "billing-9", "'billing-9' has no open transaction: its state is CompleteCommit"),
        ((None, None, None), "billing-8", "'billing-8' has no open transaction: no coordinator knows it"),
    ],
)
def test_nothing_is_ended_that_does_not_hang(on: Any, place: Any, transactional_id: Any, message: str) -> None:
    transactions = on(Transactions([OWN, LATE]))
    with pytest.raises(CommandLineError, match=message):
        end_transaction(ACCESS, place, transactional_id, force=False)
    assert transactions.aborted == []


def test_force_ends_one_partitions_part_of_a_transaction_that_is_known(on: Any, capsys: Any) -> None:
    transactions = on(Transactions([OWN, LATE]))
    end_transaction(ACCESS, ("orders", 0, 5), None, force=True)
    assert transactions.aborted == [OWN]
    assert capsys.readouterr().out == "aborted orders[0]@5 of producer 4000 epoch 3\n"


def test_an_abort_that_was_not_answered_is_not_said_to_be_done(on: Any, capsys: Any) -> None:
    on(Transactions([LATE])).error = ClusterUnavailableError("the brokers did not end it within 10 s")
    with pytest.raises(ClusterUnavailableError, match="eos-client txn list shows whether it has ended"):
        end_transaction(ACCESS, ("orders", 1, 17), None, force=False)
    assert capsys.readouterr().out == ""


def test_an_abort_that_ended_nothing_is_not_said_to_be_done(on: Any, capsys: Any) -> None:
    on(Transactions([LATE])).stubborn = True
    with pytest.raises(ClusterUnfitError, match=r"orders\[1\]@17 is still open although its leader has taken"):
        end_transaction(ACCESS, ("orders", 1, 17), None, force=False)
    assert capsys.readouterr().out == ""


def test_a_fence_that_ended_nothing_is_not_said_to_be_done(on: Any, capsys: Any, monkeypatch: Any) -> None:
    on(Transactions([OWN]))
    monkeypatch.setattr(commands, "_fence", lambda *_: None)
    with pytest.raises(ClusterUnfitError, match="the transaction of 'billing-0' is still open: its state is Ongoing"):
        end_transaction(ACCESS, (None, None, None), "billing-0", force=False)
    assert capsys.readouterr().out == ""


def test_a_topic_that_is_not_there_is_named(on: Any) -> None:
    on(Transactions([]))
    with pytest.raises(ClusterUnfitError, match="there is no topic 'nowhere'"):
        list_transactions(ACCESS, ["orders", "nowhere"])


def test_a_topic_that_may_not_be_read_is_not_said_to_have_no_transaction(on: Any) -> None:
    on(Transactions([])).unread = {"orders": "TOPIC_AUTHORIZATION_FAILED"}
    with pytest.raises(ClusterUnfitError, match="orders could not be looked at: TOPIC_AUTHORIZATION_FAILED"):
        end_transaction(ACCESS, ("orders", 1, 17), None, force=False)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0, "0 s"), (119, "119 s"), (120, "2 min"), (7200, "2 h"), (200_000, "2 days")]
)
def test_an_age_is_shown_in_its_largest_fitting_unit(seconds: int, shown: str) -> None:
    assert shown_age(seconds) == shown


@pytest.mark.parametrize(
    "installed", ["sys.modules['kafka'] = None", "sys.modules['kafka'] = types.ModuleType('kafka')"]
)
def test_without_the_extra_the_message_says_how_to_install_it(installed: str) -> None:
    code = f"""
import sys, types
{installed}
from eos_client.cli import settings, transactions
from eos_client.cli.failures import failures_reported
with failures_reported(verbose=False):
    transactions.transactions_admin(settings.ClusterAccess(bootstrap_servers="127.0.0.1:1"))
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ended.returncode == 13
    (line,) = ended.stderr.splitlines()
    assert "pip install 'eos-client[ops]'" in line

"""What users hold: confluent_kafka's public names and a short list of ours; a new name of a face is added here."""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path
from typing import Any
from unittest.mock import Mock, create_autospec

import confluent_kafka
import pytest

from eos_client import EosConsumer, EosProducer, ExactlyOnceLoop
from eos_client.clients import Transaction
from eos_client.confluent.client_library import nothing_inherited
from eos_client.errors import ClientClosedError

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}

NEWER = {"cluster_id"}
"""Of confluent_kafka 2.16; with 2.15 the call raises the AttributeError that confluent_kafka's own client raises."""

OURS_OF_CONSUMERS = {"close_within", "counters", "gate", "settings"}
PARTS_OF_CONSUMERS = {"adapter", "open_work"}
"""For this package's own producers and loop, which talk to the parts."""

OURS_OF_PRODUCERS = {"close", "counters", "limits", "settings", "transaction", "transactional_id"}
PARTS_OF_PRODUCERS = {"adapter", "session"}
"""For this package's own loop, which talks to the parts."""


def public(client: Any) -> set[str]:
    return {name for name in dir(client) if not name.startswith("_")}


@pytest.fixture
def consumer():
    with EosConsumer({**NOWHERE, "group.id": "billing"}) as made:
        yield made


@pytest.fixture
def producer():
    made = EosProducer({**NOWHERE, "transactional.id": "billing-0"})
    yield made
    made.close()


def test_a_consumer_has_the_librarys_public_names_and_few_of_ours(consumer):
    assert public(consumer) == public(confluent_kafka.Consumer) | NEWER | OURS_OF_CONSUMERS | PARTS_OF_CONSUMERS


def test_a_producer_has_the_librarys_public_names_and_those_on_the_list(producer):
    assert public(producer) == public(confluent_kafka.Producer) | NEWER | OURS_OF_PRODUCERS | PARTS_OF_PRODUCERS


def test_the_page_names_the_parts():
    page = " ".join((Path(__file__).parents[2] / "docs/reference/drop-in.md").read_text().split())
    of_consumers, of_producers = (sorted(parts) for parts in (PARTS_OF_CONSUMERS, PARTS_OF_PRODUCERS))
    assert "`{}` and `{}` of a consumer, `{}` and `{}` of a producer".format(*of_consumers, *of_producers) in page


@pytest.mark.parametrize("client", [EosConsumer, EosProducer])
def test_pythons_help_describes_a_client(client):
    assert client.__name__ in pydoc.render_doc(client)


@pytest.mark.parametrize("client", [EosConsumer, EosProducer])
@pytest.mark.parametrize(
    "stub", [lambda client: Mock(spec=client), create_autospec, lambda client: create_autospec(client, instance=True)]
)
def test_a_client_can_be_stubbed_by_its_class(client, stub):
    stubbed = stub(client)
    stubbed.close()
    stubbed.close.assert_called_once_with()
    with pytest.raises(AttributeError):
        _ = stubbed.no_such_name


@pytest.mark.parametrize(
    ("public_class", "names"),
    [
        (EosConsumer, ("gate", "counters", "settings")),
        (EosProducer, ("transaction", "counters", "limits", "transactional_id")),
        (Transaction, ("outcome", "reason", "produce")),
        (ExactlyOnceLoop, ("config", "counters", "gate", "stop_reason")),
    ],
)
def test_a_stub_has_what_the_pages_name(public_class, names):
    stub = Mock(spec=public_class)
    assert all(hasattr(stub, name) for name in names)


@pytest.mark.parametrize("client", [EosConsumer, EosProducer])
def test_a_name_that_a_client_does_not_have_is_no_attribute_of_one_that_was_never_built(client):
    never_built = client.__new__(client)
    assert not hasattr(never_built, "no_such_name")
    assert not hasattr(never_built._ownership, "_is_coroutine")


@pytest.mark.parametrize("client", [EosConsumer, EosProducer])
@pytest.mark.parametrize("stub", [Mock, create_autospec], ids=["Mock", "create_autospec"])
def test_a_client_that_was_never_built_can_be_looked_through_and_stubbed(client, stub):
    never_built = client.__new__(client)
    assert [name for name in dir(client) if hasattr(never_built, name)]
    assert dict(inspect.getmembers(never_built))["close"]() in {True, None}
    stub(spec=never_built).close()


def test_the_wrappers_are_instances_of_the_librarys_classes(consumer, producer):
    assert isinstance(consumer, confluent_kafka.Consumer)
    assert isinstance(producer, confluent_kafka.Producer)


@pytest.mark.parametrize(
    ("client", "base"), [(EosConsumer, confluent_kafka.Consumer), (EosProducer, confluent_kafka.Producer)]
)
def test_no_method_of_the_librarys_class_is_left_as_it_is(client, base):
    own = public(base) | ({"__enter__", "__exit__", "__len__"} & set(dir(base)))
    assert sorted(name for name in own if getattr(client, name) is getattr(base, name)) == []


@pytest.mark.parametrize("base", [confluent_kafka.Consumer, confluent_kafka.Producer])
def test_a_method_that_a_wrapper_does_not_know_is_no_attribute_of_it(base):
    own = {"__init__": lambda self: None, "poll": lambda self: None}
    made: type[Any] = type("Wrapper", (base,), own)
    wrapper = nothing_inherited(made)()
    with pytest.raises(AttributeError, match="Wrapper has no 'list_topics'"):
        wrapper.list_topics()
    assert {name for name in public(base) if hasattr(wrapper, name)} == {"poll"}


def test_what_a_producer_learns_when_it_is_built_names_the_remedy_before():
    with pytest.raises(ClientClosedError, match=r"limits\(\) was called before super\(\).__init__\(\)"):
        _ = EosProducer.__new__(EosProducer).limits


@pytest.mark.parametrize("make", ["consumer", "producer"])
def test_a_client_can_be_stubbed_by_an_instance(make, request):
    Mock(spec=request.getfixturevalue(make)).close()


def test_the_page_on_the_wrappers_names_what_is_ours_on_both():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "drop-in.md").read_text(encoding="utf-8")
    parts = PARTS_OF_CONSUMERS | PARTS_OF_PRODUCERS
    ours = OURS_OF_CONSUMERS | (OURS_OF_PRODUCERS - public(confluent_kafka.Producer)) | parts
    assert [name for name in sorted(ours) if f"`{name}" not in page] == []


def test_each_of_ours_is_named_where_the_consumer_is_described():
    named = {name for name in OURS_OF_CONSUMERS | PARTS_OF_CONSUMERS if f"``{name}``" in str(EosConsumer.__doc__)}
    assert named == OURS_OF_CONSUMERS | PARTS_OF_CONSUMERS

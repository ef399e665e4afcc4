"""The opaque group metadata, decoded; the layout is pinned against the client library that is installed."""

from __future__ import annotations

import struct
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from eos_client.confluent.group_metadata import GenerationReader, decode
from eos_client.core.model import GroupGeneration
from tests.support.waiting import wait_for

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


def encoded(generation_id: int, member_id: str, group_id: str = "billing", instance_id: str | None = None) -> bytes:
    instance = b"\1" if instance_id is None else b"\0" + instance_id.encode() + b"\0"
    return b"CGMDv2:" + struct.pack("=i", generation_id) + f"{group_id}\0{member_id}\0".encode() + instance


def known(metadata: object) -> GroupGeneration:
    found = decode(metadata)
    assert found is not None, f"unknown layout: {metadata!r}"
    return found


@contextmanager
def consumer(**settings):
    made = Consumer({**NOWHERE, "group.id": "billing", **{k.replace("_", "."): v for k, v in settings.items()}})
    try:
        yield made
    finally:
        made.close()


class TestAgainstTheInstalledLibrary:
    def test_a_classic_consumer_that_has_not_joined_is_anonymous(self):
        with consumer() as client:
            assert decode(client.consumer_group_metadata()) == GroupGeneration(-1, "", "billing")

    def test_a_static_member_that_has_not_joined_is_anonymous_too(self):
        with consumer(group_instance_id="billing-1") as client:
            assert decode(client.consumer_group_metadata()) == GroupGeneration(-1, "", "billing")

    @pytest.mark.parametrize("instance", [{}, {"group_instance_id": "billing-1"}])
    def test_a_kip_848_consumer_has_its_member_id_from_the_start_and_no_epoch(self, instance):
        with consumer(group_protocol="consumer", **instance) as client:
            found = known(client.consumer_group_metadata())
            assert found == GroupGeneration(-1, client.memberid(), "billing")
            assert found.member_id

    def test_a_member_of_the_librarys_own_mock_cluster_shows_its_epoch_and_its_member_id(self):
        with consumer(test_mock_num_brokers=1, bootstrap_servers="", group_protocol="consumer") as client:
            client.subscribe(["orders"])
            wait_for(
                lambda: known(client.consumer_group_metadata()).is_active_member,
                "the group to be joined",
                lambda: client.poll(0.02),
            )
            found = known(client.consumer_group_metadata())
            assert found.generation_id > 0
            assert found.member_id == client.memberid()
            assert found.is_active_member

    @pytest.mark.parametrize("instance_id", [None, "billing-1", ""])
    @pytest.mark.parametrize("generation_id", [-1, 0, 1, 2**31 - 1])
    def test_what_we_take_for_metadata_the_library_takes_too(self, generation_id, instance_id):
        metadata = encoded(generation_id, "m-1", "billing", instance_id)
        assert decode(metadata) == GroupGeneration(generation_id, "m-1", "billing")
        assert library_error(metadata) is None

    @pytest.mark.parametrize(
        "broken", ["magic", "short", "no end", "too long", "longer still", "unknown flag", "empty", "head only"]
    )
    def test_what_the_library_refuses_we_do_not_decode(self, broken):
        good = encoded(5, "m-1", "billing", "billing-1")
        metadata = {
            "magic": b"CGMDv3:" + good[7:],
            "short": good[:9],
            "no end": good[:-1],
            "too long": encoded(5, "m-1") + b"x",
            "longer still": good + b"x",
            "unknown flag": good[: -len(b"\0billing-1\0")] + b"\2billing-1\0",
            "empty": b"",
            "head only": good[:11],
        }[broken]
        assert decode(metadata) is None
        if broken != "unknown flag":  # which it reads as "no instance id" and then finds too long, or not at all
            assert library_error(metadata) == KafkaError._BAD_MSG


def library_error(metadata: bytes) -> int | None:
    """Return the code of the error with which the library refuses ``metadata`` as its own; it sends nothing."""
    producer = Producer({**NOWHERE, "transactional.id": "b-0"})
    try:
        producer.send_offsets_to_transaction([], metadata, 0.1)
    except KafkaException as error:
        code: int = error.args[0].code()
        return code
    return None


@pytest.mark.parametrize("metadata", [None, 5, "CGMDv2:", bytearray(encoded(5, "m")), [encoded(5, "m")]])
def test_what_is_not_bytes_is_not_decoded(metadata):
    assert decode(metadata) is None


@pytest.mark.parametrize("name", ["group_id", "member_id", "instance_id"])
def test_an_id_that_is_no_text_is_not_decoded(name):
    good = {"group_id": b"group", "member_id": b"member", "instance_id": b"instance"}
    ids = {**good, name: b"\xff\xfe"}
    head = b"CGMDv2:" + struct.pack("=i", 5)
    metadata = head + ids["group_id"] + b"\0" + ids["member_id"] + b"\0\0" + ids["instance_id"] + b"\0"
    assert decode(metadata) is None


def test_a_generation_is_read_in_the_machines_own_byte_order():
    assert known(encoded(0x01020304, "m")).generation_id == 0x01020304


class TestReader:
    def test_known_metadata_is_decoded_without_asking_the_client(self):
        def memberid():
            raise AssertionError("was asked")

        assert GenerationReader().read(encoded(5, "m"), memberid) == GroupGeneration(5, "m", "billing")

    def test_unknown_metadata_still_tells_changed_from_unchanged(self):
        reader = GenerationReader()
        first, again, changed = (reader.read(each, lambda: "m-1") for each in (b"v3 m-1 a", b"v3 m-1 a", b"v3 m-1 b"))
        assert first.same_membership(again)
        assert not first.same_membership(changed)
        assert first.is_active_member
        assert changed.generation_id > first.generation_id

    @pytest.mark.parametrize("memberid", [None, "", "m-2"])
    def test_unknown_metadata_that_does_not_name_the_member_counts_as_anonymous(self, memberid):
        assert not GenerationReader().read(b"v3 m-1", lambda: memberid).is_active_member

    def test_unknown_metadata_that_is_not_even_bytes_counts_as_anonymous(self):
        reader = GenerationReader()
        assert not reader.read("v3 m-1", lambda: "m-1").is_active_member
        assert not reader.read(None, lambda: "m-1").is_active_member

    def test_a_member_that_becomes_anonymous_is_noticed_though_the_layout_is_unknown(self):
        reader = GenerationReader()
        assert reader.read(b"v3 m-1", lambda: "m-1").is_active_member
        assert not reader.read(b"v3 ", lambda: "m-1").is_active_member

    def test_going_back_to_older_bytes_is_not_taken_for_the_older_generation(self):
        reader = GenerationReader()
        old, _, back = (reader.read(each, lambda: "m") for each in (b"m a", b"m b", b"m a"))
        assert not old.same_membership(back)

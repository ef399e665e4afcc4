"""The tables of error codes name codes that the client library knows: a misspelt one would never match."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from eos_client.core import error_codes

KNOWN = {KafkaError(getattr(KafkaError, name)).name() for name in dir(KafkaError) if name.strip("_").isupper()}


def codes_of(table: str) -> frozenset[str]:
    codes = getattr(error_codes, table)
    return codes if isinstance(codes, frozenset) else frozenset({codes})


@pytest.mark.parametrize("table", sorted(name for name in vars(error_codes) if name.isupper() and name != "OVERDUE"))
def test_every_code_is_one_of_the_client_library(table):
    assert codes_of(table) - KNOWN == set()


def test_our_own_error_code_is_none_of_librdkafkas():
    assert error_codes.OVERDUE not in KNOWN

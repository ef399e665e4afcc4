from typing import Any

import pytest

from eos_client.cli.failures import CommandLineError
from eos_client.cli.settings import parse_names, parse_settings


def test_settings_keep_what_follows_the_first_equals_sign() -> None:
    pairs = ["client.id=billing", "sasl.jaas=a=b", "ssl.ca.location="]
    assert parse_settings(pairs) == {"client.id": "billing", "sasl.jaas": "a=b", "ssl.ca.location": ""}


@pytest.mark.parametrize("pair", ["client.id", "=billing", "", " =x"])
def test_a_setting_that_is_not_key_equals_value_is_named(pair: Any) -> None:
    with pytest.raises(CommandLineError, match="is not KEY=VALUE"):
        parse_settings([pair])


def test_a_setting_given_twice_is_refused_with_both_values() -> None:
    with pytest.raises(CommandLineError, match=r"linger\.ms is given twice: '5' and '10'"):
        parse_settings(["linger.ms=5", "linger.ms=10"])


@pytest.mark.parametrize(
    ("pair", "option"),
    [
        ("bootstrap.servers=h:1", "--bootstrap h:1"),
        ("group.id=g", "--group g"),
        ("transactional.id=t", "--transactional-id t"),
    ],
)
def test_a_setting_with_an_option_of_its_own_points_to_that_option(pair: Any, option: Any) -> None:
    with pytest.raises(CommandLineError, match=option):
        parse_settings([pair])


def test_broker_properties_know_no_client_options() -> None:
    assert parse_settings(["group.id=g"], option="--property") == {"group.id": "g"}


def test_names_may_be_repeated_or_separated_by_commas() -> None:
    assert parse_names(["orders,refunds", "orders", " returns "], option="--from") == ["orders", "refunds", "returns"]


@pytest.mark.parametrize("values", [[], [""], ["orders,,refunds"], ["orders,"]])
def test_an_empty_name_is_refused(values: Any) -> None:
    with pytest.raises(CommandLineError, match=r"--from .* holds an empty name"):
        parse_names(values, option="--from")


def test_a_secret_is_not_shown_when_it_is_given_twice_or_wrongly():
    for pairs in (["sasl.password=hunter2", "sasl.password=hunter3"], ["sasl.password:hunter2"]):
        with pytest.raises(CommandLineError) as caught:
            parse_settings(pairs)
        assert "hunter" not in str(caught.value)

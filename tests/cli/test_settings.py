from pathlib import Path
from typing import Any

import pytest

from eos_client.cli.failures import CommandLineError
from eos_client.cli.settings import client_settings, cluster_access, parse_names, parse_settings
from eos_client.errors import ConfigurationError


def test_settings_keep_what_follows_the_first_equals_sign() -> None:
    pairs = ["client.id=billing", "sasl.jaas=a=b", "ssl.ca.location="]
    assert parse_settings(pairs) == {"client.id": "billing", "sasl.jaas": "a=b", "ssl.ca.location": ""}


@pytest.mark.parametrize("pair", ["client.id", ""])
def test_a_setting_that_is_not_key_equals_value_is_named(pair: Any) -> None:
    with pytest.raises(CommandLineError, match="is not KEY=VALUE"):
        parse_settings([pair])


@pytest.mark.parametrize("pair", ["=billing", " =x", "="])
def test_a_setting_without_a_name_is_a_wrong_setting(pair: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"^--config: a setting has no name\. Name it"):
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
        client_settings([pair], None, of_job=True)


@pytest.mark.parametrize("key", ["group.id", "transactional.id"])
def test_a_command_that_runs_no_job_passes_over_the_ids_of_one_and_refuses_them_when_they_are_meant_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    file = tmp_path / "job.toml"
    file.write_text(f'client.id = "billing"\n{key} = "b-0"\n')
    monkeypatch.setenv(f"EOS_CLIENT_CONFIG_{key.upper().replace('.', '_')}", "b-1")
    assert client_settings([], file) == {"client.id": "billing"}
    with pytest.raises(CommandLineError, match=rf"^--config {key}: this command takes no {key}$"):
        client_settings([f"{key}=x"], file)
    with pytest.raises(CommandLineError, match="give it as --"):
        client_settings([], file, of_job=True)


SECRET_FILE = """
"client.id" = "billing"
linger.ms = 5
enable.idempotence = true
[sasl]
password = "s3cret"
mechanism = "PLAIN"
"""


@pytest.fixture
def config_file(tmp_path: Path) -> Path:
    file = tmp_path / "client.toml"
    file.write_text(SECRET_FILE)
    return file


def test_a_file_may_name_keys_with_dots_or_in_tables(config_file: Path) -> None:
    assert client_settings([], config_file) == {
        "client.id": "billing",
        "linger.ms": "5",
        "enable.idempotence": "true",
        "sasl.password": "s3cret",
        "sasl.mechanism": "PLAIN",
    }


def test_a_file_of_an_editor_that_marks_its_encoding_is_read(tmp_path: Path) -> None:
    file = tmp_path / "client.toml"
    file.write_text("linger.ms = 5", encoding="utf-8-sig")
    assert client_settings([], file) == {"linger.ms": "5"}


def test_the_environment_wins_over_the_file_and_the_command_line_over_both(
    config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EOS_CLIENT_CONFIG_SASL_PASSWORD", "of the environment")
    monkeypatch.setenv("EOS_CLIENT_CONFIG_LINGER_MS", "7")
    settings = client_settings(["linger.ms=9"], config_file)
    assert (settings["sasl.password"], settings["linger.ms"], settings["client.id"]) == (
        "of the environment",
        "9",
        "billing",
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("sasl.password =", "cannot be read"),
        ("brokers = [1, 2]", "brokers is a list"),
        ("linger.ms = nan", "linger.ms is nan; give"),
        ("linger.ms = -inf", "linger.ms is -inf; give"),
        ('group.id = "g"', "--group g"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "client.toml"
    file.write_text(content)
    with pytest.raises(CommandLineError, match=rf"--config-file .*client\.toml.*{words}"):
        client_settings([], file, of_job=True)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CommandLineError, match=r"--config-file .*none\.toml cannot be read: .*No such file"):
        client_settings([], tmp_path / "none.toml")


def test_the_environment_points_to_the_option_of_a_key_that_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOS_CLIENT_CONFIG_BOOTSTRAP_SERVERS", "h:1")
    with pytest.raises(CommandLineError, match="EOS_CLIENT_CONFIG_BOOTSTRAP_SERVERS: give it as --bootstrap h:1"):
        client_settings([], None)


def test_a_setting_without_a_name_is_refused_with_where_it_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "client.toml").write_text('"" = "abc"')
    with pytest.raises(ConfigurationError, match=r"--config-file .*client\.toml: a setting has no name"):
        client_settings([], tmp_path / "client.toml")
    monkeypatch.setenv("EOS_CLIENT_CONFIG_", "abc")
    with pytest.raises(ConfigurationError, match=r"^EOS_CLIENT_CONFIG_: a setting has no name"):
        client_settings([], None)


CALLBACKS = ["error_cb", "stats_cb", "throttle_cb", "oauth_cb", "dr_cb", "on_commit", "on_delivery", "logger"]


@pytest.mark.parametrize("key", [*CALLBACKS, "default.topic.config"])
def test_what_can_only_be_given_in_code_is_refused_by_name(tmp_path: Path, key: str) -> None:
    (tmp_path / "client.toml").write_text(f'"{key}" = "x"')
    for pairs, file in (([f"{key}=x"], None), ([], tmp_path / "client.toml")):
        with pytest.raises(ConfigurationError, match=rf"--config.*: {key} is no text and can be given in code only"):
            client_settings(pairs, file, of_job=True)


def test_broker_properties_know_no_client_options() -> None:
    assert parse_settings(["group.id=g"], option="--property") == {"group.id": "g"}


def test_names_may_be_repeated_or_separated_by_commas() -> None:
    assert parse_names(["orders,refunds", "orders", " returns "], option="--from") == ["orders", "refunds", "returns"]


@pytest.mark.parametrize("values", [[""], ["orders,,refunds"], ["orders,"]])
def test_an_empty_name_is_refused(values: Any) -> None:
    with pytest.raises(CommandLineError, match=r"--from .* holds an empty name"):
        parse_names(values, option="--from")


def test_a_secret_is_not_shown_when_it_is_given_twice_or_wrongly():
    for pairs in (["sasl.password=hunter2", "sasl.password=hunter3"], ["sasl.password:hunter2"]):
        with pytest.raises(CommandLineError) as caught:
            parse_settings(pairs)
        assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("of_job", [True, False])
@pytest.mark.parametrize(
    "pair", ["default.topic.config=sasl.password=hunter2", "bootstrap.servers=user:hunter2@broker"]
)
def test_what_no_option_takes_is_refused_without_a_secret_in_its_value(pair: str, *, of_job: bool) -> None:
    with pytest.raises((CommandLineError, ConfigurationError)) as caught:
        client_settings([pair], None, of_job=of_job)
    assert pair.partition("=")[0] in str(caught.value)
    assert "hunter" not in str(caught.value)


# -- the cluster and its profiles ------------------------------------------------------------------------------------

PROFILES = """
bootstrap.servers = "localhost:9092"
client.id = "billing"
[profiles.prod]
bootstrap.servers = "kafka.example:9093"
security.protocol = "SASL_SSL"
[profiles.prod.sasl]
username = "billing"
[profiles.bare]
linger.ms = 5
"""


@pytest.fixture
def profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("EOS_CLIENT_BOOTSTRAP_SERVERS", raising=False)
    file = tmp_path / "clusters.toml"
    file.write_text(PROFILES)
    return file


def test_a_profile_adds_to_what_holds_for_all(profiles: Path) -> None:
    assert cluster_access(None, [], profiles).settings == {"client.id": "billing"}
    access = cluster_access(None, ["client.id=other"], profiles, "prod")
    assert access.settings == {"client.id": "other", "security.protocol": "SASL_SSL", "sasl.username": "billing"}


@pytest.mark.parametrize(
    ("option", "environment", "profile", "address"),
    [
        ("a:1", "b:2", "prod", "a:1"),
        (None, "b:2", "prod", "kafka.example:9093"),
        (None, "b:2", "bare", "localhost:9092"),
        (None, "b:2", None, "b:2"),
        (None, "", None, "localhost:9092"),
        (None, None, None, "localhost:9092"),
    ],
)
def test_the_cluster_of_a_chosen_profile_wins_over_the_environment(
    profiles: Path,
    monkeypatch: pytest.MonkeyPatch,
    option: str | None,
    environment: str | None,
    profile: str | None,
    address: str,
) -> None:
    if environment is not None:
        monkeypatch.setenv("EOS_CLIENT_BOOTSTRAP_SERVERS", environment)
    assert cluster_access(option, [], profiles, profile).bootstrap_servers == address


def test_a_cluster_that_nobody_names_is_a_wrong_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("EOS_CLIENT_BOOTSTRAP_SERVERS", raising=False)
    with pytest.raises(CommandLineError, match="give --bootstrap HOST:PORT, EOS_CLIENT_BOOTSTRAP_SERVERS="):
        cluster_access(None, [], None)


def test_credentials_in_the_address_of_the_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EOS_CLIENT_BOOTSTRAP_SERVERS", "user:hunter2@broker:9092")
    with pytest.raises(ConfigurationError, match="is not shown") as refused:
        cluster_access(None, [], None)
    assert "hunter2" not in str(refused.value)


def test_a_profile_that_is_not_there_is_told_with_those_that_are(profiles: Path) -> None:
    with pytest.raises(
        CommandLineError, match=r"no table \[profiles\.prdo\] in .*; did you mean 'prod'\? It has: prod"
    ):
        cluster_access(None, [], profiles, "prdo")
    with pytest.raises(CommandLineError, match="a profile is a table of a file"):
        cluster_access(None, [], None, "prod")


def test_a_wrong_value_of_a_profile_names_its_place(tmp_path: Path) -> None:
    file = tmp_path / "clusters.toml"
    file.write_text("[profiles.prod]\nbrokers = [1]\n")
    with pytest.raises(CommandLineError, match=r"profiles\.prod\.brokers is a list"):
        cluster_access("a:1", [], file, "prod")


def test_file_and_profile_may_be_named_once_in_the_environment(
    profiles: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("eos_client.cli.commands.topic.create_topics", lambda access, *_: seen.append(access))
    monkeypatch.setenv("EOS_CLIENT_CONFIG_FILE", str(profiles))
    monkeypatch.setenv("EOS_CLIENT_PROFILE", "prod")
    assert typed("topic", "create", "orders").status == 0
    (access,) = seen
    assert access.bootstrap_servers == "kafka.example:9093"
    assert access.settings["sasl.username"] == "billing"


def test_the_demo_goes_to_no_cluster_that_was_not_named_for_it(
    profiles: Path, monkeypatch: pytest.MonkeyPatch, typed: Any
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr("eos_client.cli.demo.session.run_demo", lambda options, _console: seen.append(options))
    monkeypatch.setenv("EOS_CLIENT_CONFIG_FILE", str(profiles))
    monkeypatch.setenv("EOS_CLIENT_BOOTSTRAP_SERVERS", "b:2")
    assert typed("demo").status == 0
    assert (seen[0].bootstrap_servers, seen[0].settings) == (None, {})

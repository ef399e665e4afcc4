"""The commands on a cluster that asks who they are and what they may do (docs/how-to/secure-clusters.md)."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from eos_client import EosConfig, ExactlyOnceLoop
from eos_client.cli import redrive, redriven_letters
from eos_client.cli.failures import exit_code_of
from eos_client.errors import AuthenticationError
from tests.cli.conftest import Cluster
from tests.cli.test_run_command import committed, run_line
from tests.support.secured_broker import (
    PASSWORD,
    SHORT_CLASSIC_SESSION,
    USER,
    Op,
    identity_provider,
    on_cluster,
    on_group,
    on_id,
    on_topic,
)

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "secure-clusters.md").read_text(encoding="utf-8")
(COMMAND,) = re.findall(r"```sh\n(.*?)\n```", PAGE, re.DOTALL)
FILES = dict(zip(("PLAIN", "SCRAM", "OIDC", "mTLS"), re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL), strict=True))


def changed(text: str, changes: dict[str, str]) -> str:
    for old, new in changes.items():
        text = text.replace(old, new)
    return text


class Site(Cluster):
    """The secured broker, with topics of this test alone; nobody may do anything with them yet."""

    def __init__(self, broker: Any, folder: Path) -> None:
        super().__init__(broker.plain)
        self.broker, self._folder = broker, folder
        self.user = self.prefix

    def config(self, login: dict[str, str]) -> list[str]:
        """Where to connect, and a file with the rest of the settings."""
        settings = dict(login)
        ends = ["--bootstrap", settings.pop("bootstrap.servers")]
        path = self._folder / f"{len(list(self._folder.iterdir()))}.toml"
        path.write_text("".join(f'"{key}" = "{value}"\n' for key, value in settings.items()))
        return [*ends, "--config-file", str(path)]

    def as_user(self) -> list[str]:
        return self.config(self.broker.login("OAUTHBEARER", self.user))

    def new_user(self) -> dict[str, str]:
        """The login of this test's user by a password, which it is given here."""
        self.broker.add_user(self.user)
        login: dict[str, str] = self.broker.login("SCRAM-SHA-512", self.user)
        return login

    def run_line(self, source: str, target: str, connect: list[str], *more: str) -> list[str]:
        line = run_line(self, "shout.py:upper", source, target, "--transactional-id", self.prefix, *more)
        at = line.index("--bootstrap")
        return [*line[:at], *connect, *line[at + 2 :]]

    def needed(self, source: str, target: str) -> list[Any]:
        """What the page lists for a loop."""
        ends = [*on_topic(source, Op.READ), *on_topic(target, Op.WRITE)]
        return [*ends, *on_group(f"{self.prefix}-group", Op.READ), *on_id(self.prefix, Op.WRITE)]


@pytest.fixture
def site(secured_broker: Any, tmp_path: Path) -> Site:
    return Site(secured_broker, tmp_path)


@pytest.mark.parametrize(
    "mechanism",
    # The clients' own tests come in by a password, too.
    [pytest.param(name, marks=[] if name in {"OIDC", "mTLS"} else pytest.mark.soak) for name in FILES],
)
def test_the_files_of_the_page_let_a_worker_in_and_no_secret_is_in_the_list_of_processes(
    mechanism: str, site: Site, upper_file: Path, tmp_path: Path, eos_client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = site.topic("source"), site.topic("target")
    site.load(source, [b"a", b"b"])
    permissions = [each for each in site.needed(source, target) if each.name != site.prefix]
    site.broker.grant(USER, *permissions, *on_id("eos-", Op.WRITE, is_prefix=True))
    for variable in set(re.findall(r"EOS_CLIENT_CONFIG_\w+", PAGE)):
        monkeypatch.setenv(variable, PASSWORD)
    login = site.broker.login("mTLS" if mechanism == "mTLS" else "PLAIN")
    with identity_provider() as tokens:
        written = {
            "/etc/kafka/ca.pem": str(site.broker.authority),
            "/etc/kafka/billing.pem": str(site.broker.certificate),
            "/etc/kafka/billing.key": str(site.broker.key),
            "https://login.example.org/oauth2/token": tokens,
        }
        (tmp_path / "client.toml").write_text(changed(FILES[mechanism], written))
        typed = {
            "billing.py:price": "shout.py:upper",
            "broker:9093": login["bootstrap.servers"],
            "--group billing": f"--group {site.prefix}-group",
            "--from orders": f"--from {source}",
            "--to invoices": f"--to {target}",
        }
        worker = eos_client(*changed(COMMAND, typed).split()[1:])
        worker.wait_for(lambda: committed(site, source) == {0: 2}, "commit")
        assert PASSWORD not in Path(f"/proc/{worker.process.pid}/cmdline").read_text()
        assert worker.terminate() == 0
    assert site.values(target) == [b"A", b"B"]
    assert PASSWORD not in worker.err + worker.out


def test_commands_that_log_all_that_they_can_print_no_secret(
    site: Site, upper_file: Path, eos_client: Any, typed: Any
) -> None:
    source, target, dead = site.topic("source"), site.topic("target"), site.topic("dead")
    site.load(source, [b"a", b"b"])
    redriving = [*on_topic(dead, Op.READ, Op.WRITE), *on_group(f"eos-redrive-{dead}", Op.READ)]
    making = on_topic(f"{source}-2", Op.CREATE, Op.DESCRIBE)
    site.broker.grant(USER, *site.needed(source, target), *redriving, *making, *on_id("eos-", Op.WRITE, is_prefix=True))
    producer = Producer({"bootstrap.servers": site.bootstrap_servers})
    producer.produce(dead, b"c", headers={"eos.topic": target, "eos.partition": "0"})
    assert producer.flush(60) == 0
    connect = [*site.config(site.broker.login("PLAIN")), "--verbose", "--config", "debug=all"]
    worker = eos_client(*site.run_line(source, target, connect))
    worker.wait_for(lambda: committed(site, source) == {0: 2}, "commit")
    assert worker.terminate() == 0
    lines = [
        ["tail", source, "--no-follow"],
        ["topic", "create", f"{source}-2"],
        ["doctor", "--from", source, "--to", target],
        ["redrive", dead],
        ["txn", "list", "--topic", source],
    ]
    said = [worker.err + worker.out]
    for line in lines:
        status, printed = status_of(typed, [*line, *connect])
        assert status == 0, printed
        said.append(printed)
    assert [PASSWORD in each for each in said] == [False] * len(said)
    assert ["SASL" in each for each in said[:-1]] == [True] * len(lines)  # but for txn, librdkafka has logged


def wrong_logins(broker: Any, tokens: str) -> dict[str, tuple[dict[str, str], str]]:
    """Each with what the error says of it."""
    password = {"sasl.password": "wr0ng-passw0rd"}
    mutual = broker.login("mTLS")
    keys = ("ssl.certificate.location", "ssl.key.location")
    nobody = {key: value for key, value in mutual.items() if key not in keys}
    foreign = dict(zip(keys, map(str, (broker.foreign_certificate, broker.foreign_key)), strict=True))
    token = {"sasl.oauthbearer.config": f"principal={USER}"}
    secret = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": USER,
        "sasl.oauthbearer.client.secret": password["sasl.password"],
        "sasl.oauthbearer.token.endpoint.url": tokens,
    }
    by_token = {key: value for key, value in broker.login("OAUTHBEARER").items() if "oauthbearer" not in key}
    other_authority = {"ssl.ca.location": str(broker.foreign_authority)}
    return {
        "a wrong password": ({**broker.login("PLAIN"), **password}, "Invalid username or password"),
        "a wrong SCRAM password": ({**broker.login("SCRAM-SHA-512"), **password}, "invalid credentials"),
        "an unknown user": (broker.login("SCRAM-SHA-512", "nobody"), "invalid credentials"),
        "a token that is refused": ({**broker.login("OAUTHBEARER"), **token}, "insufficient_scope"),
        "a secret that the identity provider refuses": ({**by_token, **secret}, "invalid_client"),
        "no certificate": (nobody, "certificate"),
        "a certificate of another authority": ({**mutual, **foreign}, "certificate"),
        "another authority than the broker's": (
            {**broker.login("PLAIN"), **other_authority},
            "certificate verify failed",
        ),
    }


def why_refused(login: dict[str, str], site: Site, source: str) -> AuthenticationError:
    """What a loop with that login ends with."""
    config = EosConfig(login, group_id=f"{site.prefix}-group", start_timeout_s=20)
    with pytest.raises(AuthenticationError) as refused, ExactlyOnceLoop(config, [source], lambda _: []) as loop:
        loop.run()
    return refused.value


def test_credentials_that_are_refused_end_every_command_with_a_status_of_their_own(
    site: Site, upper_file: Path, eos_client: Any, typed: Any
) -> None:
    source, target = site.topic("source"), site.topic("target")
    with identity_provider() as tokens, ThreadPoolExecutor(8) as side_by_side:
        wrong = wrong_logins(site.broker, tokens)
        loops = {name: side_by_side.submit(why_refused, login, site, source) for name, (login, _) in wrong.items()}
        password = site.config(wrong["a wrong password"][0])
        commands = [
            eos_client(*site.run_line(source, target, password, "--start-timeout", "20")),
            typed("doctor", *password),
            typed("tail", source, *password),
            typed("topic", "create", f"{source}-2", *password),
        ]
        assert [command.wait() for command in commands] == [14] * 4, commands[0].err
        errors = {name: loop.result() for name, loop in loops.items()}
    for name, error in errors.items():
        assert wrong[name][1] in str(error), name
        assert exit_code_of(error) == 14
    messages = [command.err.splitlines()[-1] for command in commands]
    (told, *_) = [line for line in commands[0].err.splitlines() if "client_error" in line]
    assert all("Invalid username or password" in text for text in (told, *messages[1:])), commands[0].err
    assert "the client last reported _AUTHENTICATION" in messages[0]
    for message in (*messages, *map(str, errors.values())):
        assert "Correct the user name, the password or token, or the certificates" in message
    assert "wr0ng-passw0rd" not in "".join([*map(str, errors.values()), *(each.err + each.out for each in commands)])


def status_of(command_line: Any, arguments: list[str]) -> tuple[int, str]:
    command = command_line(*arguments)
    return command.wait(), command.err + command.out


def test_tail_needs_to_read_the_topic_and_nothing_else(site: Site, typed: Any) -> None:
    topic = site.topic("orders")
    site.load(topic, [b"plums"])
    line = ["tail", topic, "--no-follow", *site.as_user()]
    status, said = status_of(typed, line)
    assert (status, topic in said) == (6, True), said
    site.broker.grant(site.user, *on_topic(topic, Op.READ))
    assert status_of(typed, line) == (0, "0@0\t\\N\tplums\n")


def test_topic_create_needs_to_create_and_to_describe_the_topic(site: Site, typed: Any) -> None:
    first, second = f"{site.prefix}-first", f"{site.prefix}-second"
    site.broker.grant(site.user, *on_topic(first, Op.DESCRIBE), *on_topic(second, Op.CREATE))
    for topic in (first, second):  # the second is made, and cannot be looked at
        status, said = status_of(typed, ["topic", "create", topic, *site.as_user()])
        assert (status, topic in said) == (6, True), said
    site.broker.grant(site.user, *on_topic(first, Op.CREATE))
    assert status_of(typed, ["topic", "create", first, *site.as_user()]) == (0, f"{first}\n")


def test_doctor_needs_to_describe_what_it_is_asked_about_and_says_what_it_may_not_read(site: Site, typed: Any) -> None:
    topic, group = site.topic("orders"), f"{site.prefix}-group"
    line = ["doctor", "--topic", topic, "--group", group, *site.as_user()]
    status, said = status_of(typed, line)
    assert (status, topic in said) == (6, True), said
    site.broker.grant(site.user, *on_topic(topic, Op.DESCRIBE))
    status, said = status_of(typed, line)
    assert (status, group in said) == (6, True), said
    site.broker.grant(site.user, *on_group(group, Op.DESCRIBE))
    status, said = status_of(typed, line)
    assert (status, "allow Read on it to this user" in said) == (6, True), said
    site.broker.grant(site.user, *on_group(group, Op.READ))
    status, said = status_of(typed, line)
    assert status == 0, said
    assert "allow DescribeConfigs on the topic" in said
    assert "allow DescribeConfigs on the cluster" in said
    site.broker.grant(site.user, *on_topic(topic, Op.DESCRIBE_CONFIGS), *on_cluster(Op.DESCRIBE_CONFIGS))
    status, said = status_of(typed, line)
    assert (status, "DescribeConfigs" in said) == (0, False), said


@pytest.mark.soak  # test_permissions.py has each of them without the commands
def test_a_worker_with_dead_letters_and_a_generated_id_needs_their_topic_and_the_prefix(
    site: Site, tmp_path: Path, eos_client: Any, typed: Any
) -> None:
    (tmp_path / "price.py").write_text("def price(record):\n    return b'%d' % (100 // int(record.value()))\n")
    source, target, dead = site.topic("source"), site.topic("target"), site.topic("dead")
    site.load(source, [b"0", b"4"])
    line = run_line(site, "price.py:price", source, target, "--on-error", "dead_letter", "--dead-letter-topic", dead)
    at = line.index("--bootstrap")
    line = [*line[:at], *site.as_user(), *line[at + 2 :]]
    generated = on_id("eos-", Op.WRITE, is_prefix=True)
    permissions = [each for each in site.needed(source, target) if each.name != site.prefix]
    site.broker.grant(site.user, *permissions)
    status, said = status_of(typed, line)
    assert (status, "transactional.id 'eos-" in said) == (6, True), said
    site.broker.grant(site.user, *generated)
    status, said = status_of(typed, line)
    assert (status, f"the output topic '{dead}'" in said) == (6, True), said
    site.broker.grant(site.user, *on_topic(dead, Op.WRITE))
    worker = eos_client(*line)
    worker.wait_for(lambda: committed(site, source) == {0: 2}, "commit")
    assert worker.terminate() == 0
    assert (site.values(target), site.values(dead)) == ([b"25"], [b"0"])


def test_redrive_needs_what_the_page_lists(site: Site, typed: Any) -> None:
    source, dead = site.topic("source"), site.topic("dead")
    producer = Producer({"bootstrap.servers": site.bootstrap_servers})
    for more in ({}, {"eos.omitted": "value"}):  # the second cannot be sent, and is kept
        producer.produce(dead, b"one", headers={"eos.topic": source, "eos.partition": "0", **more})
    assert producer.flush(60) == 0
    needed = [
        *on_topic(dead, Op.READ),
        *on_topic(dead, Op.WRITE),
        *on_topic(source, Op.WRITE),
        *on_group(f"eos-redrive-{dead}", Op.READ),
        *on_id("eos-", Op.WRITE, is_prefix=True),
    ]
    line = ["redrive", dead, *site.as_user()]
    site.broker.grant(site.user, *(each for each in needed if each.name != source))
    status, said = status_of(typed, line)
    assert (status, source in said) == (6, True), said
    site.broker.grant(site.user, *on_topic(source, Op.WRITE))
    status, said = status_of(typed, line)
    assert (status, f"1 sent to {source}" in said) == (15, True), said
    assert (site.values(source), site.values(dead)) == ([b"one"], [b"one"] * 3)


def letters(site: Site, count: int) -> tuple[str, str]:
    """A topic, and one of its dead letters, each in a batch of its own."""
    source, dead = site.topic("source"), site.topic("dead")
    producer = Producer({"bootstrap.servers": site.bootstrap_servers})
    for number in range(count):
        producer.produce(
            dead,
            b"%d" % number,
            headers={"eos.topic": source, "eos.partition": "0", "eos.error": f"kind {number % 2}"},
        )
        assert producer.flush(60) == 0
    return source, dead


TAKEN_FROM_REDRIVE = {
    "read the letters": lambda _source, dead: on_topic(dead, Op.READ),
    "write the letters that are kept": lambda _source, dead: on_topic(dead, Op.WRITE),
    "write the target": lambda source, _dead: on_topic(source, Op.WRITE),
    "read the group": lambda _source, dead: on_group(f"eos-redrive-{dead}", Op.READ),
    "write the transactional ids": lambda _source, _dead: on_id("eos-", Op.WRITE, is_prefix=True),
}


# The clients' own tests have all of them.
IN_EACH_RUN = ("read the letters",)


@pytest.mark.parametrize(
    "lost", [pytest.param(lost, marks=() if lost in IN_EACH_RUN else pytest.mark.soak) for lost in TAKEN_FROM_REDRIVE]
)
def test_a_permission_that_is_taken_from_redrive_is_named_and_no_letter_is_lost(
    lost: str, site: Site, typed: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two transactions are committed before."""
    source, dead = letters(site, 20)
    needed = {name: permissions(source, dead) for name, permissions in TAKEN_FROM_REDRIVE.items()}
    site.broker.grant(site.user, *(each for permissions in needed.values() for each in permissions))
    asked: list[Any] = []

    def error_of(letter: Any) -> str:
        asked.append(letter)
        if len(asked) == 10:
            site.broker.take_away(site.user, *needed[lost])
        return redriven_letters.error_of(letter)

    line = ["redrive", dead, *site.as_user()]
    more = {
        # As little is fetched ahead as the client library lets one ask for.
        "read the letters": ["max.partition.fetch.bytes=1", "queued.min.messages=1", "fetch.queue.backoff.ms=1"],
        "read the group": [f"{key}={value}" for key, value in SHORT_CLASSIC_SESSION.items()],
    }
    with monkeypatch.context() as patched:
        patched.setattr(redrive, "_BATCH", 4)
        patched.setattr(redrive, "error_of", error_of)
        status, said = status_of(
            typed, [*line, "--match", "kind 0", *(f"--config={each}" for each in more.get(lost, []))]
        )
    names = {"read the letters": dead, "write the letters that are kept": dead, "write the target": source}
    named = names.get(lost, f"eos-redrive-{dead}" if lost == "read the group" else "transactional.id 'eos-")
    assert (status, named in said) == (6, True), said
    assert len(site.values(source)) in range(1, 10)
    site.broker.grant(site.user, *needed[lost])
    assert status_of(typed, line)[0] == 0
    assert sorted(map(int, site.values(source))) == [*range(20)]

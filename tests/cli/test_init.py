"""`eos-client init` writes a folder, and everything in the folder does what it is for."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

import eos_client
from eos_client import EosConfig
from eos_client.cli.failures import CommandLineError
from eos_client.cli.project import NAME_IN_FILES, TEMPLATE, VERSION_IN_FILES, create_project
from eos_client.cli.settings import cluster_access
from eos_client.integration import probes
from eos_client.testing.broker_settings import DEFAULT_VERSION
from eos_client.testing.free_ports import free_ports
from tests.cli.conftest import Cluster, Command
from tests.observability.test_monitoring_files import ALERTS_FILE, DASHBOARD_FILE, RULES
from tests.support.code_blocks import REPOSITORY, code_blocks
from tests.support.waiting import wait_for

PAGE = REPOSITORY / "docs" / "how-to" / "start-a-project.md"
SCALING = REPOSITORY / "docs" / "how-to" / "scale-by-lag.md"
KUBERNETES_VERSION = "1.30"
LONG_NAME = "a" * 52
WHEELS = "*.whl"
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
# The fields of KEDA's ScaledObject (config/crd/bases/keda.sh_scaledobjects.yaml in kedacore/keda) and the parameters of
# its kafka trigger (keda.sh/docs/2.13/scalers/apache-kafka) that the manifest uses.
SCALED_OBJECT = {
    "type": "object",
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "additionalProperties": False,
    "properties": {
        "apiVersion": {"const": "keda.sh/v1alpha1"},
        "kind": {"const": "ScaledObject"},
        "metadata": {"type": "object", "required": ["name"]},
        "spec": {
            "type": "object",
            "required": ["scaleTargetRef", "triggers"],
            "additionalProperties": False,
            "properties": {
                "scaleTargetRef": {
                    "type": "object",
                    "required": ["name"],
                    "additionalProperties": False,
                    "properties": {"apiVersion": TEXT, "kind": TEXT, "name": TEXT},
                },
                "minReplicaCount": NUMBER,
                "maxReplicaCount": NUMBER,
                "pollingInterval": NUMBER,
                "cooldownPeriod": NUMBER,
                "triggers": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["metadata", "type"],
                        "additionalProperties": False,
                        "properties": {
                            "type": {"const": "kafka"},
                            "metadata": {
                                "type": "object",
                                "required": ["bootstrapServers", "consumerGroup"],
                                "additionalProperties": False,
                                "properties": {
                                    "bootstrapServers": TEXT,
                                    "consumerGroup": TEXT,
                                    "topic": TEXT,
                                    "lagThreshold": {"type": "string", "pattern": r"^\d+$"},
                                    "offsetResetPolicy": {"enum": ["latest", "earliest"]},
                                    "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parent = tmp_path_factory.mktemp("init")
    create_project("billing", parent)
    return parent / "billing"


def files_in(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def instructions(project: Path) -> dict[str, str]:
    """Of the Dockerfile: what stands behind each instruction that comes once."""
    text = re.sub(r"\\\n\s*", "", (project / "Dockerfile").read_text())
    lines = [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    return {name: rest for name, rest in lines if [each for each, _ in lines].count(name) == 1}


def entry_point(project: Path) -> list[str]:
    command: list[str] = json.loads(instructions(project)["ENTRYPOINT"])
    return command


def option(project: Path, name: str) -> str:
    (value,) = (each.partition("=")[2] for each in entry_point(project) if each.startswith(f"{name}="))
    return value


def manifest(project: Path, kind: str) -> dict[str, Any]:
    (found,) = (each for each in documents(project / "kubernetes" / "worker.yaml") if each["kind"] == kind)
    return found


def pod(project: Path) -> dict[str, Any]:
    template: dict[str, Any] = manifest(project, "StatefulSet")["spec"]["template"]
    return template


def container(project: Path) -> dict[str, Any]:
    (worker,) = pod(project)["spec"]["containers"]
    found: dict[str, Any] = worker
    return found


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_writes_the_folder_and_says_what_is_in_it(typed: Any, tmp_path: Path) -> None:
    ended = typed("init", "billing")
    assert ended.status == 0
    assert set(ended.out.splitlines()) == {f"billing/{name}" for name in files_in(tmp_path / "billing")}
    assert "cd billing" in ended.err


def test_every_file_is_written_and_no_placeholder_is_left(project: Path) -> None:
    assert files_in(project) == files_in(TEMPLATE)
    texts = [(project / name).read_text() for name in files_in(project)]
    assert [text for text in texts if NAME_IN_FILES in text or VERSION_IN_FILES in text] == []
    assert f"=={eos_client.__version__}\n" in (project / "requirements.txt").read_text()


@pytest.mark.parametrize(
    "name", ["", "Billing", "billing_1", "1billing", "-billing", "billing-", "a/b", "..", "bill ing", LONG_NAME + "a"]
)
def test_a_name_that_kubernetes_refuses_is_refused_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(CommandLineError, match=re.escape(f"the name {name!r}")) as refused:
        create_project(name, tmp_path)
    assert "for example billing" in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_with_files_in_it_stays_as_it_is(typed: Any, tmp_path: Path) -> None:
    (tmp_path / "billing").mkdir()
    (tmp_path / "billing" / "worker.py").write_text("mine")
    ended = typed("init", "billing")
    assert ended.status == 2
    assert "billing exists already and is left as it is" in ended.err
    assert files_in(tmp_path) == {"billing/worker.py"}
    assert (tmp_path / "billing" / "worker.py").read_text() == "mine"


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("nowhere")], ids=["file", "dead link"])
def test_a_file_or_a_dead_link_of_that_name_stays_as_it_is(make: Any, tmp_path: Path) -> None:
    make(tmp_path / "billing")
    with pytest.raises(CommandLineError, match="exists already"):
        create_project("billing", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["billing"]


def test_an_empty_folder_of_that_name_is_filled(tmp_path: Path) -> None:
    (tmp_path / "billing").mkdir()
    create_project("billing", tmp_path)
    assert files_in(tmp_path / "billing") == files_in(TEMPLATE)


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CommandLineError, match=r"file/billing cannot be written: .*Not a directory"):
        create_project("billing", tmp_path / "file")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_disk_that_gets_full_leaves_nothing_behind(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file = Path.open
    before_it_is_full = iter(range(10))

    def open_on_a_small_disk(path: Path, mode: str = "r", **options: Any) -> Any:
        file = open_file(path, mode, **options)
        return file if mode != "x" or next(before_it_is_full, None) is not None else Path("/dev/full").open("w")

    if is_there:
        (tmp_path / "billing").mkdir()
    monkeypatch.setattr(Path, "open", open_on_a_small_disk)
    with pytest.raises(CommandLineError, match=r"billing cannot be written: .*No space left"):
        create_project("billing", tmp_path)
    assert [each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*")] == ["billing"] * is_there
    monkeypatch.undo()
    create_project("billing", tmp_path)


# -- the program and its test -----------------------------------------------------------------------------------------


def test_the_loop_by_hand_fails_because_it_doubles_and_loses_orders(project: Path) -> None:
    command = [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", "--runxfail"]
    ran = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=240, check=False)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    few = r"\[b'invoice for order-\d+'(?:, b'invoice for order-\d+'){0,9}\]"
    assert re.search(rf"^E +AssertionError: assert \({few}, {few}\) == \(\[\], \[\]\)", ran.stdout, re.MULTILINE)


def test_the_first_steps_of_the_page_lead_to_a_test_that_passes(tmp_path: Path) -> None:
    _, steps = [block.code for block in code_blocks(PAGE, "sh")]
    installing = "python -m pip install -r requirements-test.txt\n"
    assert installing in steps
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    ran = subprocess.run(
        ["sh", "-ec", steps.replace(installing, "")],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "1 passed, 1 xfailed" in ran.stdout


def test_the_page_lists_every_file(project: Path) -> None:
    listed = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), re.MULTILINE)
    folders = tuple(name for name in listed if name.endswith("/"))
    shown = {name for name in files_in(project) if not name.startswith((".", *folders))}
    assert shown == set(listed) - set(folders)


@pytest.mark.parametrize("name", ["a", LONG_NAME])
def test_the_code_satisfies_ruff_whatever_the_name(name: str, tmp_path: Path) -> None:
    create_project(name, tmp_path)
    for command in (["check"], ["format", "--check"]):
        ran = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--isolated", "--no-cache"],
            cwd=tmp_path / name,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout


def test_the_test_asks_for_no_other_version_than_the_program(project: Path) -> None:
    test = (project / "requirements-test.txt").read_text().splitlines()
    assert test == ["-r requirements.txt", "eos-client[test]"]


@pytest.mark.parametrize(
    ("profile", "address"),
    [(None, "localhost:9092"), ("compose", "kafka:19092"), ("kubernetes", "kafka.kafka.svc:9092")],
)
def test_the_file_of_settings_names_a_cluster_for_each_place(
    profile: str | None, address: str, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("EOS_CLIENT_BOOTSTRAP_SERVERS", raising=False)
    access = cluster_access(None, None, project / "kafka.toml", profile, of_job=True)
    assert (access.bootstrap_servers, access.settings) == (address, {})


@pytest.fixture
def worker(project: Path, tmp_path: Path, cluster: Cluster) -> Iterator[Any]:
    """Start what the image starts, with what the StatefulSet adds, on this broker; `ports` are those of the machine."""
    commands: list[Command] = []

    def start(*further: str) -> Command:
        program, *arguments = entry_point(project)
        assert program == "eos-client"
        given = [re.sub(r"^(--(?:group|from|to)=)", rf"\1{cluster.prefix}-", each) for each in arguments]
        commands.append(Command(["-m", "eos_client", *given, *further], tmp_path, cwd=project))
        return commands[-1]

    yield start
    for command in commands:
        if command.process.poll() is None:
            command.process.kill()
            command.process.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False


def test_what_the_image_starts_works_answers_its_probes_and_ends_by_sigterm(
    project: Path, worker: Any, cluster: Cluster
) -> None:
    orders, invoices = cluster.topic(option(project, "--from")), cluster.topic(option(project, "--to"))
    cluster.load(orders, [b"1", b"2"])
    health, metrics = free_ports(2)
    names = {"$(POD_NAMESPACE)": cluster.prefix, "$(POD_NAME)": "billing-0"}
    (pinned,) = container(project)["args"]
    for variable, value in names.items():
        pinned = pinned.replace(variable, value)

    running = worker(
        pinned, f"--bootstrap={cluster.bootstrap_servers}", f"--health-port={health}", f"--metrics-port={metrics}"
    )

    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        path = container(project)[probe]["httpGet"]["path"]
        running.wait_for(lambda path=path: answers(f"http://127.0.0.1:{health}{path}"), probe)
    running.wait_for(lambda: answers(f"http://127.0.0.1:{metrics}/metrics"), "metrics")
    wait_for(lambda: cluster.values(invoices) == [b"invoice for 1", b"invoice for 2"], lambda: running.err)
    assert running.terminate() == 0


# -- the image and compose --------------------------------------------------------------------------------------------


def test_the_image_runs_the_worker_itself_as_process_1_without_root(project: Path) -> None:
    said = instructions(project)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", said["USER"])
    assert said["STOPSIGNAL"] == "SIGTERM"
    assert entry_point(project)[:2] == ["eos-client", "run"]


def test_the_image_has_the_files_that_it_copies_and_nothing_else(project: Path) -> None:
    copied = re.findall(r"^COPY (.+) \./$", (project / "Dockerfile").read_text(), re.MULTILINE)
    files = {name for line in copied for name in line.split()}
    assert files - {WHEELS} <= files_in(project)
    admitted = (project / ".dockerignore").read_text().splitlines()
    assert (admitted[0], {each.removeprefix("!") for each in admitted[1:]}) == ("*", files)
    assert {option(project, "--config-file"), entry_point(project)[2].partition(":")[0]} < files


def test_the_image_takes_eos_client_from_a_wheel_in_the_folder_if_there_is_one(project: Path) -> None:
    said, shown = instructions(project), PAGE.read_text()
    assert WHEELS in (project / "Dockerfile").read_text()
    assert "--find-links=." in said["RUN"].split()
    assert "pip wheel --no-deps" in shown


def test_compose_starts_the_broker_the_topics_and_then_the_worker(project: Path) -> None:
    services = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    assert services["worker"]["build"] == "."
    assert services["worker"]["depends_on"] == {"topics": {"condition": "service_completed_successfully"}}
    assert services["topics"]["depends_on"] == {"kafka": {"condition": "service_healthy"}}
    assert {services[name]["image"] for name in ("kafka", "topics")} == {f"apache/kafka:{DEFAULT_VERSION}"}
    created = services["topics"]["command"][-1]
    assert f"for topic in {option(project, '--from')} {option(project, '--to')};" in created


def test_the_worker_of_compose_and_the_host_reach_the_broker(project: Path) -> None:
    services = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    broker, profile = services["kafka"]["environment"], services["worker"]["environment"]["EOS_CLIENT_PROFILE"]
    inside = cluster_access(None, None, project / "kafka.toml", profile).bootstrap_servers
    outside = cluster_access(None, None, project / "kafka.toml").bootstrap_servers
    advertised = dict(each.split("://") for each in broker["KAFKA_ADVERTISED_LISTENERS"].split(","))
    assert (advertised["COMPOSE"], advertised["HOST"]) == (inside, outside)
    assert f"--bootstrap-server={inside} " in services["topics"]["command"][-1]
    assert services["kafka"]["ports"] == [f"127.0.0.1:{outside.partition(':')[2]}:9092"]


# -- Kubernetes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["Service", "StatefulSet", "PodDisruptionBudget"])
def test_each_manifest_fits_its_schema(kind: str, project: Path) -> None:
    kubernetes_validate.validate(manifest(project, kind), KUBERNETES_VERSION, strict=True)


def test_a_field_that_kubernetes_does_not_know_is_noticed(project: Path) -> None:
    wrong = manifest(project, "StatefulSet")
    wrong["spec"]["template"]["spec"]["terminationGracePeriod"] = 45
    with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
        kubernetes_validate.validate(wrong, KUBERNETES_VERSION, strict=True)


def test_the_longest_name_fits_the_label_of_its_pods(tmp_path: Path) -> None:
    create_project(LONG_NAME, tmp_path)
    name = manifest(tmp_path / LONG_NAME, "StatefulSet")["metadata"]["name"]
    assert len(f"{name}-0123456789") == 63  # controller-revision-hash


def test_all_objects_select_the_pods_of_the_statefulset(project: Path) -> None:
    labels = pod(project)["metadata"]["labels"]
    service, budget = manifest(project, "Service"), manifest(project, "PodDisruptionBudget")
    assert manifest(project, "StatefulSet")["spec"]["selector"] == {"matchLabels": labels}
    assert service["spec"]["selector"] == labels
    assert budget["spec"]["selector"] == {"matchLabels": labels}
    assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"
    assert manifest(project, "StatefulSet")["spec"]["serviceName"] == service["metadata"]["name"]


def test_the_probes_ask_where_the_program_answers(project: Path) -> None:
    worker = container(project)
    ports = {each["name"]: str(each["containerPort"]) for each in worker["ports"]}
    assert ports == {"health": option(project, "--health-port"), "metrics": option(project, "--metrics-port")}
    asked = {name: worker[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert {each["port"] for each in asked.values()} == {"health"}
    assert {each["path"] for each in asked.values()} == set(probes._VERDICTS)
    assert {worker[name]["timeoutSeconds"] for name in asked} == {10}, "C code may keep the interpreter for seconds"
    assert asked["livenessProbe"]["path"] == "/livez"
    assert asked["readinessProbe"]["path"] == "/readyz"
    assert pod(project)["metadata"]["annotations"]["prometheus.io/port"] == ports["metrics"]


def test_the_worker_may_finish_before_it_is_killed(project: Path) -> None:
    config = EosConfig({"bootstrap.servers": "kafka:9092"}, group_id="billing")
    limit_s = config.shutdown_timeout_s + 3 * config.commit_timeout_s
    assert pod(project)["spec"]["terminationGracePeriodSeconds"] >= limit_s + 20
    services = yaml.safe_load((project / "compose.yaml").read_text())["services"]
    assert int(services["worker"]["stop_grace_period"].removesuffix("s")) >= limit_s + 20
    comment = re.search(r"shutdown_timeout_s \((\d+)\) \+ 3 \* commit_timeout_s \((\d+)\)", manifests_text(project))
    assert comment is not None
    assert [int(each) for each in comment.groups()] == [config.shutdown_timeout_s, config.commit_timeout_s]


def manifests_text(project: Path) -> str:
    return (project / "kubernetes" / "worker.yaml").read_text()


def test_a_password_comes_from_a_secret_that_may_be_missing(project: Path) -> None:
    assert container(project)["envFrom"] == [{"secretRef": {"name": "billing-kafka", "optional": True}}]
    assert "kubectl create secret generic billing-kafka" in PAGE.read_text()


def test_each_pod_has_an_id_of_its_own_that_its_successor_gets_again(project: Path) -> None:
    worker = container(project)
    assert worker["args"] == ["--transactional-id=$(POD_NAMESPACE)-$(POD_NAME)"]
    fields = {each["name"]: each["valueFrom"]["fieldRef"]["fieldPath"] for each in worker["env"] if "valueFrom" in each}
    assert fields == {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace"}


def test_the_scaled_object_fits_its_schema_and_goes_by_the_worker_s_group(project: Path) -> None:
    (scaled,) = documents(project / "kubernetes" / "keda.yaml")
    jsonschema.validate(scaled, SCALED_OBJECT)
    target, (trigger,) = scaled["spec"]["scaleTargetRef"], scaled["spec"]["triggers"]
    stateful = manifest(project, "StatefulSet")
    assert target == {"apiVersion": stateful["apiVersion"], "kind": "StatefulSet", "name": stateful["metadata"]["name"]}
    assert "replicas" not in stateful["spec"], "an apply would undo what KEDA has set"
    profile = {each["name"]: each.get("value") for each in container(project)["env"]}["EOS_CLIENT_PROFILE"]
    settings = EosConfig({"bootstrap.servers": "kafka:9092"}, group_id="billing").consumer_config()
    given = trigger["metadata"]
    assert given["bootstrapServers"] == cluster_access(None, None, project / "kafka.toml", profile).bootstrap_servers
    assert (given["consumerGroup"], given["topic"]) == (option(project, "--group"), option(project, "--from"))
    assert given["offsetResetPolicy"] == settings["auto.offset.reset"]


def test_the_scaled_object_of_the_page_is_that_of_the_project(project: Path) -> None:
    (block,) = code_blocks(SCALING, "yaml")
    (written,) = documents(project / "kubernetes" / "keda.yaml")
    del written["metadata"]["labels"]
    assert yaml.safe_load(block.code) == written


def test_a_parameter_that_keda_does_not_know_is_noticed(project: Path) -> None:
    (scaled,) = documents(project / "kubernetes" / "keda.yaml")
    scaled["spec"]["triggers"][0]["metadata"]["lagTreshold"] = "5"
    with pytest.raises(jsonschema.ValidationError, match="lagTreshold"):
        jsonschema.validate(scaled, SCALED_OBJECT)


# -- monitoring -------------------------------------------------------------------------------------------------------


def test_the_dashboard_and_the_alerts_are_those_that_are_tested(project: Path) -> None:
    for file in (ALERTS_FILE, DASHBOARD_FILE):
        assert (project / "monitoring" / file.name).read_bytes() == file.read_bytes()


def test_the_alert_on_restarts_is_on_the_container_of_the_statefulset(project: Path) -> None:
    (rule,) = (each for each in RULES if each["alert"] == "EosWorkerRestarts")
    assert f'container="{container(project)["name"]}"' in rule["expr"]

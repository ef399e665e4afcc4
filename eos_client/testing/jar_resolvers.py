"""Resolves jars from a Maven repository.

Pinned jars are downloaded as they are listed. The dependencies of others are resolved by the Ivy among PySpark's own
jars, or else by Maven. Both check their downloads against the repository's checksums. ``EOS_CLIENT_MAVEN_REPOSITORY``
names another repository, a company's mirror for example.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape, quoteattr

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.broker_settings import CHEAP_JVM
from eos_client.testing.maven_settings import REPOSITORY_VARIABLE, MavenRepository, without_credentials
from eos_client.testing.pinned_jars import can_download, download_pinned, pinned_jars

if TYPE_CHECKING:
    from collections.abc import Callable

    from eos_client.testing.java_runtime import JavaRuntime

_DOWNLOAD_TIMEOUT_S = 600.0
_TAIL_LINES = 30
_NO_DEPENDENCIES = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"  # Maven's spelling
)


@dataclass(frozen=True)
class JarSet:
    """A set of jars: ``title`` and ``size_mb`` are for messages, ``folder`` is its name in the cache.

    ``artifacts`` are (organisation, name, revision); with ``transitive`` their dependencies are resolved as well.
    ``landmark`` matches the name of a jar that must be in the set.
    """

    title: str
    folder: str
    artifacts: tuple[tuple[str, str, str], ...]
    landmark: str
    size_mb: int
    transitive: bool = True


def resolve_jars(jars: JarSet, into: Path, work: Path, java: JavaRuntime, on_progress: Callable[[str], None]) -> None:
    """Put the jars into ``into``, and the resolver's own files into ``work``.

    Raises `EmbeddedKafkaError` with the end of the resolver's output if it fails, or if there is no resolver.
    """
    pinned = pinned_jars(jars.folder)
    if pinned and can_download():
        on_progress(f"downloading {jars.title} (about {jars.size_mb} MB, once)")
        download_pinned(pinned, jars.title, into, on_progress)
        return
    ivy, maven = _pyspark_ivy(), shutil.which("mvn")
    if ivy is not None:
        tool, command = "Ivy", _ivy_command(ivy, jars, into, work, java)
    elif maven is not None:
        tool, command = "Maven", maven_command(maven, jars, into, work)
    else:
        raise EmbeddedKafkaError(f"the jars of {jars.title} cannot be resolved here: {_way_out(pinned=bool(pinned))}")
    on_progress(f"resolving {jars.title} with {tool} (about {jars.size_mb} MB, once)")
    exit_code, tail = _run(command, jars.title, on_progress)
    if exit_code != 0 or not any(into.glob("*.jar")):
        where = MavenRepository(os.environ.get(REPOSITORY_VARIABLE, ""))
        raise EmbeddedKafkaError(
            f"{tool} could not resolve {jars.title} from {where} (exit code {exit_code}): check the version and "
            f"the network, or set {REPOSITORY_VARIABLE} to a repository that can be reached. Its output:\n{tail}"
        )


def _way_out(*, pinned: bool) -> str:
    if pinned:
        return "pip install 'eos-client[test]', which brings maven-artifact"
    return (
        "their dependencies are not listed in eos-client. Choose a version that is, or pip install "
        "'eos-client[spark]' for the Ivy inside PySpark, or install Maven (mvn on PATH)"
    )


def _run(command: list[str], title: str, on_progress: Callable[[str], None]) -> tuple[int, str]:
    """Run the resolver and report its progress; returns its exit code and the end of its output."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    module_count = jar_count = 0
    with subprocess.Popen(  # noqa: S603  arguments are ours
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as resolver:
        limit = threading.Timer(_DOWNLOAD_TIMEOUT_S, resolver.kill)
        limit.start()
        try:
            for line in resolver.stdout or ():
                if line.strip(" .\n") == "":
                    continue  # Ivy draws its progress with dots
                tail.append(without_credentials(line.rstrip()))
                if line.startswith("\tfound "):
                    module_count += 1
                    on_progress(f"resolving {title}: {line.split()[1]} ({module_count})")
                elif jar := _jar_named_in(line):
                    jar_count += 1
                    on_progress(f"downloading {title}: {jar} ({jar_count})")
        except BaseException:
            resolver.kill()
            raise
        finally:
            limit.cancel()
    return resolver.returncode, "\n".join(tail)


def _jar_named_in(line: str) -> str | None:
    """Return the jar whose download a line of the resolver's output reports, if it reports one."""
    if "downloading" not in line.lower():
        return None
    address = next((word for word in line.split() if "://" in word), "")
    name = address.rsplit("/", 1)[-1]
    return name if name.endswith(".jar") else None


def _pyspark_ivy() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        for jar in sorted(Path(location, "jars").glob("ivy-*.jar"), reverse=True):
            return jar
    return None


def _ivy_command(ivy: Path, jars: JarSet, into: Path, work: Path, java: JavaRuntime) -> list[str]:
    descriptor = work / "ivy.xml"
    dependencies = "".join(
        f'<dependency org="{organisation}" name="{name}" rev="{revision}" conf="default->default" '
        f'transitive="{str(jars.transitive).lower()}"/>'
        for organisation, name, revision in jars.artifacts
    )
    descriptor.write_text(
        '<ivy-module version="2.0"><info organisation="eos-client" module="jars"/>'
        f'<configurations><conf name="default"/></configurations><dependencies>{dependencies}</dependencies>'
        "</ivy-module>"
    )
    return [
        *(str(java.executable), *CHEAP_JVM, f"-Divy.default.ivy.user.dir={work / 'ivy'}", "-jar", str(ivy)),
        *_ivy_settings(work),
        *("-ivy", str(descriptor), "-confs", "default", "-types", "jar", "bundle"),
        *("-retrieve", f"{into}/[artifact]-[revision](-[classifier]).[ext]"),
    ]


def _ivy_settings(work: Path) -> list[str]:
    repository = os.environ.get(REPOSITORY_VARIABLE)
    if not repository:
        return []
    settings = work / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="chosen"/><resolvers>'
        f'<ibiblio name="chosen" m2compatible="true" root={quoteattr(repository)}/></resolvers></ivysettings>'
    )
    return ["-settings", str(settings)]


def maven_command(maven: str, jars: JarSet, into: Path, work: Path) -> list[str]:
    """Return the command with which Maven copies the jars into a folder; its descriptor is written into ``work``."""
    descriptor = work / "pom.xml"
    dependencies = "".join(
        f"<dependency><groupId>{organisation}</groupId><artifactId>{name}</artifactId><version>{revision}</version>"
        f"{_NO_DEPENDENCIES if not jars.transitive else ''}</dependency>"
        for organisation, name, revision in jars.artifacts
    )
    descriptor.write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>eos-client</groupId><artifactId>jars</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies>{_maven_repositories()}</project>"
    )
    return [
        *(maven, "--batch-mode", "--file", str(descriptor), "dependency:copy-dependencies"),
        *("-DincludeScope=runtime", f"-DoutputDirectory={into}"),
    ]


def _maven_repositories() -> str:
    repository = os.environ.get(REPOSITORY_VARIABLE)
    if not repository:
        return ""
    url = escape(repository)
    return (
        f"<repositories><repository><id>central</id><url>{url}</url></repository></repositories>"
        f"<pluginRepositories><pluginRepository><id>central</id><url>{url}</url></pluginRepository></pluginRepositories>"
    )

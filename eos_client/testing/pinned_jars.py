"""Downloads jars with known addresses and checksums; needs neither Maven nor Java.

Each file of ``jar_lists/`` names the jars of one `JarSet` as ``sha256sum`` would: the checksum, then the path in a
Maven repository. ``scripts/pin_jars.py`` writes them.
"""

from __future__ import annotations

import hashlib
import importlib.util
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tenacity

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.maven_settings import MavenRepository, chosen_repository

if TYPE_CHECKING:
    from collections.abc import Callable

LISTS = Path(__file__).parent / "jar_lists"
_CONNECTIONS = 8
_ANSWER_TIMEOUT_S = 60.0
_ATTEMPTS = 3
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class PinnedJar:
    """A jar by its path in a Maven repository, and the SHA-256 that it must have."""

    path: str
    sha256: str

    @property
    def file_name(self) -> str:
        """Its name in the cache."""
        return self.path.rsplit("/", 1)[-1]

    @property
    def coordinates(self) -> tuple[str, str, str]:
        """Group, artifact and version, as Maven names it."""
        *group, artifact, version, _file = self.path.split("/")
        return ".".join(group), artifact, version


def pinned_jars(folder: str) -> tuple[PinnedJar, ...]:
    """Return the jars of the set that is cached in ``folder``; none if the set is not pinned."""
    try:
        lines = (LISTS / f"{folder}.sha256").read_text().splitlines()
    except FileNotFoundError:
        return ()
    return tuple(PinnedJar(path, sha256) for sha256, path in (line.split("  ", 1) for line in lines))


def can_download() -> bool:
    """Whether the library for the downloads is installed."""
    return importlib.util.find_spec("maven_artifact") is not None


def download_pinned(jars: tuple[PinnedJar, ...], title: str, into: Path, on_progress: Callable[[str], None]) -> None:
    """Put the jars into ``into``; ``on_progress`` is called with a line for each.

    Raises `EmbeddedKafkaError` if the repository does not answer or a jar has another checksum.
    """
    repository = chosen_repository()
    with ThreadPoolExecutor(_CONNECTIONS) as connections:
        downloads = [connections.submit(_download, jar, repository, into) for jar in jars]
        try:
            for number, (jar, download) in enumerate(zip(jars, downloads, strict=True), start=1):
                download.result()
                on_progress(f"downloading {title}: {jar.file_name} ({number} of {len(jars)})")
        except BaseException:
            connections.shutdown(cancel_futures=True)
            raise


def _download(jar: PinnedJar, repository: MavenRepository, into: Path) -> None:
    try:
        digest = _retried(_fetch, jar, repository, into / jar.file_name)
    except Exception as error:
        raise EmbeddedKafkaError(
            f"{jar.file_name} could not be downloaded from {repository}: {error}; check the network, or name a "
            "repository that can be reached (EOS_CLIENT_MAVEN_REPOSITORY, or a mirror in Maven's settings.xml)"
        ) from error
    if digest != jar.sha256:
        raise EmbeddedKafkaError(
            f"{jar.file_name} from {repository} has the SHA-256 {digest}, and {jar.sha256} was expected: "
            "the repository serves another file under this name; use another repository"
        )


_retried = tenacity.Retrying(
    stop=tenacity.stop_after_attempt(_ATTEMPTS), wait=tenacity.wait_exponential(multiplier=0.5), reraise=True
)


def _fetch(jar: PinnedJar, repository: MavenRepository, file: Path) -> str:
    """Write the jar to the file and return its SHA-256."""
    # An optional dependency.
    from maven_artifact import Artifact, Resolver  # noqa: PLC0415
    from maven_artifact.requestor import Requestor  # noqa: PLC0415

    requestor = Requestor(username=repository.user, password=repository.password)
    resolver = Resolver(repository.url, requestor) if repository.url else Resolver.default()
    digest = hashlib.sha256()
    answer: Any = requestor.request(
        resolver.uri_for_artifact(Artifact(*jar.coordinates)), None, stream=True, timeout=_ANSWER_TIMEOUT_S
    )
    with answer, file.open("wb") as written:
        for chunk in answer.iter_content(_CHUNK_BYTES):
            digest.update(chunk)
            written.write(chunk)
    return digest.hexdigest()

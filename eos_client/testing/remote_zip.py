"""Reads members of a zip archive in a Maven repository by HTTP ranges, without downloading the others."""

from __future__ import annotations

import hashlib
import io
import re
import zipfile
import zlib
from typing import TYPE_CHECKING, Any

import tenacity

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.maven_settings import MavenRepository, chosen_repository, without_credentials

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_END_BYTES = 256 << 10  # holds the list of the members of an archive with a thousand of them
_CHUNK_BYTES = 8 << 20
_ANSWER_TIMEOUT_S = 60.0
_ATTEMPTS = 3
_PARTIAL_CONTENT = 206
_MIB = 1 << 20
_retried = tenacity.Retrying(
    stop=tenacity.stop_after_attempt(_ATTEMPTS), wait=tenacity.wait_exponential(multiplier=0.5), reraise=True
)


def download_members(
    coordinates: Mapping[str, str],
    digests: Mapping[str, str],
    title: str,
    into: Path,
    on_progress: Callable[[str], None],
) -> None:
    """Put the members that ``digests`` names, with the SHA-256 of each, into a folder.

    ``coordinates`` are arguments of `maven_artifact.Artifact`. Raises `EmbeddedKafkaError` if the repository does not
    answer, serves no parts of files, or a member has another checksum.
    """
    repository = chosen_repository()
    try:
        with _session(repository) as session:
            remote = RemoteFile(
                _address(coordinates, repository), session, lambda line: on_progress(f"{title}: {line}")
            )
            with zipfile.ZipFile(remote) as archive:
                found = {name: _extract(archive, name, into) for name in _in_file_order(archive, digests)}
    except ImportError as error:
        raise EmbeddedKafkaError(
            f"to download {title}, maven-artifact is needed: pip install 'eos-client[test]' (or eos-client[cli])"
        ) from error
    except (OSError, KeyError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        raise EmbeddedKafkaError(
            f"{title} could not be downloaded from {repository}: {without_credentials(str(error))}; check the network, "
            "or name a repository that can be reached (EOS_CLIENT_MAVEN_REPOSITORY, or a mirror in Maven's "
            "settings.xml)"
        ) from error
    for name, digest in found.items():
        if digest != digests[name]:
            raise EmbeddedKafkaError(
                f"{name} of {title} from {repository} has the SHA-256 {digest}, and {digests[name]} was expected: "
                "the repository serves another file under this name; use another repository"
            )


class RemoteFile(io.RawIOBase):
    """A file on an HTTP server, of which the parts are read that are asked for, and a little more.

    ``session`` is one of the library requests; ``on_progress`` is called with how much has been read so far.
    """

    def __init__(self, url: str, session: Any, on_progress: Callable[[str], None]) -> None:
        super().__init__()
        self._url = url
        self._session = session
        self._on_progress = on_progress
        self._position = 0
        self._received_bytes = 0
        self._size, self._chunk_start, self._chunk = _retried(self._fetch, f"-{_END_BYTES}")

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position; nothing is read yet."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = base + offset
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Read from the chunk that is there, or from the next."""
        if self._position >= self._size:
            return 0
        if not self._chunk_start <= self._position < self._chunk_start + len(self._chunk):
            last = min(self._size, self._position + _CHUNK_BYTES) - 1
            _size, self._chunk_start, self._chunk = _retried(self._fetch, f"{self._position}-{last}")
            self._on_progress(f"{self._received_bytes // _MIB} MiB downloaded")
        start = self._position - self._chunk_start
        part = self._chunk[start : start + len(buffer)]
        buffer[: len(part)] = part
        self._position += len(part)
        return len(part)

    def _fetch(self, part: str) -> tuple[int, int, bytes]:
        """Return the size of the file, and a part of it with its start."""
        headers = {"Range": f"bytes={part}"}
        with self._session.get(self._url, headers=headers, stream=True, timeout=_ANSWER_TIMEOUT_S) as answer:
            answer.raise_for_status()
            found = re.fullmatch(r"bytes (\d+)-\d+/(\d+)", answer.headers.get("Content-Range", ""))
            if answer.status_code != _PARTIAL_CONTENT or found is None:
                raise OSError("it serves no parts of files (HTTP ranges)")
            content = answer.content
        self._received_bytes += len(content)
        return int(found[2]), int(found[1]), content


def _session(repository: MavenRepository) -> Any:
    import requests  # noqa: PLC0415  comes with maven-artifact, an optional dependency

    session = requests.Session()
    if repository.user and repository.password:
        session.auth = (repository.user, repository.password)
    return session


def _address(coordinates: Mapping[str, str], repository: MavenRepository) -> str:
    from maven_artifact import Artifact, Resolver  # noqa: PLC0415  an optional dependency
    from maven_artifact.requestor import Requestor  # noqa: PLC0415

    resolver = Resolver(repository.url, Requestor()) if repository.url else Resolver.default()
    return str(resolver.uri_for_artifact(Artifact(**coordinates)))


def _in_file_order(archive: zipfile.ZipFile, names: Mapping[str, str]) -> list[str]:
    """Return the names as their members follow each other, so that one chunk holds several."""
    return sorted(names, key=lambda name: archive.getinfo(name).header_offset)


def _extract(archive: zipfile.ZipFile, name: str, into: Path) -> str:
    """Write a member to its place in the folder and return its SHA-256."""
    file, digest = into / name, hashlib.sha256()
    file.parent.mkdir(parents=True, exist_ok=True)
    with archive.open(name) as member, file.open("wb") as written:
        while part := member.read(_MIB):
            digest.update(part)
            written.write(part)
    return digest.hexdigest()

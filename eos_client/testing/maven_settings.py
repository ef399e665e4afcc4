"""The Maven repository for downloads: from the environment, the user's mirror, or the central one."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from eos_client.errors import EmbeddedKafkaError

REPOSITORY_VARIABLE = "EOS_CLIENT_MAVEN_REPOSITORY"
"""Environment variable with the URL of the Maven repository to use instead of the central one."""

_CENTRAL = "central"
_PLACEHOLDER = re.compile(r"\$\{env\.(\w+)\}")


@dataclass(frozen=True)
class MavenRepository:
    """A repository: an empty ``url`` is the central one; user and password are sent where both are given."""

    url: str = ""
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """Return its URL without credentials, for messages."""
        return without_credentials(self.url) or "the central Maven repository"


def without_credentials(text: str) -> str:
    """Return ``text`` without user and password in the addresses in it."""
    return re.sub(r"//[^/@\s]*@", "//", text)


def chosen_repository() -> MavenRepository:
    """Return the repository that ``EOS_CLIENT_MAVEN_REPOSITORY`` names, else a mirror in ``~/.m2/settings.xml``.

    A mirror is used if Maven would use it for the central repository, with the credentials of the server with the
    mirror's id. Raises `EmbeddedKafkaError` if the file is no XML.
    """
    if url := os.environ.get(REPOSITORY_VARIABLE):
        return MavenRepository(url)
    file = Path.home() / ".m2" / "settings.xml"
    try:
        settings = ET.fromstring(file.read_bytes())  # noqa: S314  the user's own file
    except FileNotFoundError:
        return MavenRepository()
    except (OSError, ET.ParseError) as error:
        raise EmbeddedKafkaError(f"{file} cannot be read: {error}; repair it, or set {REPOSITORY_VARIABLE}") from error
    for mirror in settings.iterfind("{*}mirrors/{*}mirror"):
        if _serves_central(_text(mirror, "mirrorOf")):
            return _with_credentials(mirror, settings)
    return MavenRepository()


def _serves_central(mirror_of: str) -> bool:
    """Whether Maven's pattern (names, ``*``, ``external:*``, exclusions after ``!``) covers the central repository."""
    names = {name.strip() for name in mirror_of.split(",")}
    return f"!{_CENTRAL}" not in names and not names.isdisjoint({_CENTRAL, "*", "external:*"})


def _with_credentials(mirror: ET.Element, settings: ET.Element) -> MavenRepository:
    url, identity = _text(mirror, "url"), _text(mirror, "id")
    for server in settings.iterfind("{*}servers/{*}server"):
        if _text(server, "id") == identity:
            return MavenRepository(url, _text(server, "username") or None, _text(server, "password") or None)
    return MavenRepository(url)


def _text(element: ET.Element, name: str) -> str:
    """Return the text of a child, with the values of environment variables in place of ``${env.NAME}``."""
    text = element.findtext(f"{{*}}{name}") or ""
    return _PLACEHOLDER.sub(lambda match: os.environ.get(match[1], match[0]), text.strip())

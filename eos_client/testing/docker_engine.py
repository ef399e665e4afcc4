"""Finds the Docker engine that testcontainers would use, and a Kafka image for it."""

from __future__ import annotations

import os
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedKafkaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docker.models.images import ImageCollection
    from testcontainers.core.container import DockerContainer

IMAGE_VARIABLE = "EOS_CLIENT_KAFKA_IMAGE"
"""Environment variable with the image to use instead of the official one; without a tag, the version is the tag."""

OFFICIAL_IMAGE = "apache/kafka"
"""The Kafka project's own image (KIP-975)."""

LOCAL_IMAGE = "eos-client/kafka"
"""The image that ``make kafka-image`` builds, for engines that reach no registry."""


_ANSWER_TIMEOUT_S = 10
_REAPER_HINT = (
    " (testcontainers could not get the image of its reaper; "
    "where no registry is reachable, set TESTCONTAINERS_RYUK_DISABLED=true)"
)


def engine_version() -> str | None:
    """Return the version of the Docker engine that answers, or None if none does."""
    try:
        from docker.errors import DockerException  # noqa: PLC0415  part of the optional test dependencies
        from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415
    except ImportError:
        return None
    try:
        client = DockerClient(timeout=_ANSWER_TIMEOUT_S).client
        try:
            return str(client.version()["Version"])
        finally:
            client.close()
    except (DockerException, OSError) as error:
        _drop_sockets(error)
        return None


@contextmanager
def engine_errors(what_failed: str) -> Iterator[None]:
    """Raise an error of the Docker engine, or of the connection to it, as `EmbeddedKafkaError`."""
    try:
        from docker.errors import DockerException  # noqa: PLC0415  part of the optional test dependencies
    except ImportError as error:
        raise EmbeddedKafkaError("a container needs testcontainers: pip install 'eos-client[test]'") from error
    try:
        yield
    except (DockerException, OSError) as error:
        _drop_sockets(error)
        hint = _REAPER_HINT if "ryuk" in str(error) else ""
        raise EmbeddedKafkaError(f"{what_failed}{hint}. The engine's error: {error}") from None


def _drop_sockets(error: BaseException | None) -> None:
    """Drop the sockets that could not connect: docker leaves them open, which is an error under ``-W error``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        while error is not None:
            traceback.clear_frames(error.__traceback__)
            error = error.__cause__ or error.__context__


def new_container(version: str) -> DockerContainer:
    """Prepare a container with an image of this Kafka version; the image is pulled if it is missing.

    Raises `EmbeddedKafkaError` if no engine answers or there is no image.
    """
    configured = os.environ.get(IMAGE_VARIABLE)
    with engine_errors("no Docker engine answers: start one, or use --eos-kafka=process"):
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415  optional, as is docker

        container = DockerContainer(tagged(configured or OFFICIAL_IMAGE, version))
        images = container.get_docker_client().client.images
    try:
        with engine_errors(_no_image(container.image, version)):
            if not _has(images, container.image):
                images.pull(container.image)
    except EmbeddedKafkaError:
        local = f"{LOCAL_IMAGE}:{version}"
        if configured or not _has(images, local):
            container.stop()
            raise
        container.image = local
        _disable_missing_reaper(images)
    return container


def tagged(image: str, version: str) -> str:
    """Return the image with a tag: its own, or else the Kafka version."""
    last_part = image.rsplit("/", 1)[-1]
    return image if ":" in last_part or "@" in last_part else f"{image}:{version}"


def _has(images: ImageCollection, name: str) -> bool:
    from docker.errors import ImageNotFound  # noqa: PLC0415

    try:
        images.get(name)
    except ImageNotFound:
        return False
    return True


def _disable_missing_reaper(images: ImageCollection) -> None:
    """Disable testcontainers' reaper if its image is missing: an engine without a registry cannot pull it."""
    from testcontainers.core.config import testcontainers_config  # noqa: PLC0415

    if not _has(images, testcontainers_config.ryuk_image):
        testcontainers_config.ryuk_disabled = True


def _no_image(image: str, version: str) -> str:
    return (
        f"a Docker engine answers, but the image {image} is missing and cannot be pulled: "
        f"make kafka-image KAFKA_VERSION={version} builds {LOCAL_IMAGE}:{version} without a registry, "
        f"{IMAGE_VARIABLE} names another image, --eos-kafka=process does without"
    )

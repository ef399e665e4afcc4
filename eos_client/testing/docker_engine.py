"""Finds the Docker engine that testcontainers would use, and an image of Kafka for it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from eos_client.errors import EmbeddedKafkaError

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer

IMAGE_VARIABLE = "EOS_CLIENT_KAFKA_IMAGE"
"""Environment variable with the image to use instead of the official one; without a tag, the version is the tag."""

OFFICIAL_IMAGE = "apache/kafka"
"""The Kafka project's own image (KIP-975)."""

LOCAL_IMAGE = "eos-client/kafka"
"""What ``make kafka-image`` builds, for engines that reach no registry."""


def engine_version() -> str | None:
    """Return the version of the Docker engine that answers, or None if none does."""
    try:
        import docker.errors  # noqa: PLC0415  part of the optional test dependencies
        from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415
    except ImportError:
        return None
    try:
        client = DockerClient().client
        try:
            return str(client.version()["Version"])
        finally:
            client.close()
    except (docker.errors.DockerException, OSError):
        return None


def new_container(version: str) -> DockerContainer:
    """Prepare a container with an image of this Kafka version that the engine has now, pulled if need be.

    Raises `EmbeddedKafkaError` if no engine answers or the image cannot be had.
    """
    try:
        import docker.errors  # noqa: PLC0415  part of the optional test dependencies
        from testcontainers.core.container import DockerContainer  # noqa: PLC0415
    except ImportError as error:
        raise EmbeddedKafkaError("a container needs testcontainers: pip install 'eos-client[test]'") from error
    configured = os.environ.get(IMAGE_VARIABLE)
    try:
        container = DockerContainer(tagged(configured or OFFICIAL_IMAGE, version))
        images = container.get_docker_client().client.images
    except docker.errors.DockerException as error:
        raise EmbeddedKafkaError(f"no Docker engine answers: start one or use a process instead ({error})") from error
    local = f"{LOCAL_IMAGE}:{version}"
    if images.list(name=container.image):
        return container
    try:
        images.pull(container.image)
    except (docker.errors.DockerException, OSError) as error:
        if configured or not images.list(name=local):
            raise EmbeddedKafkaError(_no_image(container.image, version, error)) from error
        container.image = local
    return container


def tagged(image: str, version: str) -> str:
    """Return the image with a tag: its own, or else the Kafka version."""
    last_part = image.rsplit("/", 1)[-1]
    return image if ":" in last_part or "@" in last_part else f"{image}:{version}"


def _no_image(image: str, version: str, error: Exception) -> str:
    return (
        f"a Docker engine answers, but the image {image} is not there and cannot be pulled ({error}): "
        f"make kafka-image KAFKA_VERSION={version} builds {LOCAL_IMAGE}:{version} without a registry, "
        f"{IMAGE_VARIABLE} names another image, --kafka=process does without"
    )

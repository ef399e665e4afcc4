"""librdkafka's partitioners: which partition a record is written to."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from random import Random

Partitioner = Callable[[bytes | None, int, Random], int]
"""From a record's key, the number of partitions and the cluster's random numbers to a partition."""

_MURMUR_SEED = 0x9747B28C
_MURMUR_FACTOR = 0x5BD1E995
_WORD = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF
_FNV_SEED, _FNV_FACTOR = 0x811C9DC5, 0x01000193


def _by_random(_: bytes | None, partitions: int, random: Random) -> int:
    return random.randrange(partitions)


def _by_crc32(key: bytes | None, partitions: int, _: Random) -> int:
    return zlib.crc32(key or b"") % partitions


def _by_murmur2(key: bytes | None, partitions: int, _: Random) -> int:
    return (_murmur2(key or b"") & _POSITIVE) % partitions


def _by_fnv1a(key: bytes | None, partitions: int, _: Random) -> int:
    mixed = _FNV_SEED
    for byte in key or b"":
        mixed = (mixed ^ byte) * _FNV_FACTOR & _WORD
    signed = mixed - (1 << 32) if mixed > _POSITIVE else mixed
    return abs(signed) % partitions


def _murmur2(key: bytes) -> int:
    mixed = _MURMUR_SEED ^ len(key)
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * _MURMUR_FACTOR & _WORD
        word = (word ^ word >> 24) * _MURMUR_FACTOR & _WORD
        mixed = mixed * _MURMUR_FACTOR & _WORD ^ word
    if whole < len(key):
        mixed = (mixed ^ int.from_bytes(key[whole:], "little")) * _MURMUR_FACTOR & _WORD
    mixed = (mixed ^ mixed >> 13) * _MURMUR_FACTOR & _WORD
    return mixed ^ mixed >> 15


def _random_without_key(with_key: Partitioner, *, empty_is_none: bool) -> Partitioner:
    def choose(key: bytes | None, partitions: int, random: Random) -> int:
        without = not key if empty_is_none else key is None
        return (_by_random if without else with_key)(key, partitions, random)

    return choose


PARTITIONERS: Mapping[str, Partitioner] = {
    "random": _by_random,
    "consistent": _by_crc32,
    "consistent_random": _random_without_key(_by_crc32, empty_is_none=True),
    "murmur2": _by_murmur2,
    "murmur2_random": _random_without_key(_by_murmur2, empty_is_none=False),
    "fnv1a": _by_fnv1a,
    "fnv1a_random": _random_without_key(_by_fnv1a, empty_is_none=False),
}

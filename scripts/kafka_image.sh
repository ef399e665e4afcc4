#!/usr/bin/env bash
# Builds eos-client/kafka:VERSION, an image that stands in for the official apache/kafka where no registry can be
# reached: a small Debian root (debootstrap) with a JRE, the same jars as the embedded broker, and an entry script
# that reads the same KAFKA_* variables. Usage: kafka_image.sh [VERSION...]
#
# The root is kept as a tar in the user's cache; an image that is there and up to date is left as it is.
set -euo pipefail

cd "$(dirname "$0")/.."
readonly suite=bookworm jre=openjdk-17-jre-headless
readonly entry=scripts/kafka_image_entry.sh
readonly cache="${XDG_CACHE_HOME:-$HOME/.cache}/eos-client"
readonly python="${PYTHON:-.venv/bin/python}"

say() { printf '%s\n' "$*" >&2; }
fail() { say "kafka-image: $*"; exit 1; }

digest() { cat "$@" | sha256sum | cut -c1-16; }

ensure_debootstrap() {
    command -v debootstrap >/dev/null && return
    command -v apt-get >/dev/null || fail "debootstrap is missing: install it with the system's package manager"
    say "installing debootstrap"
    local said
    said=$({ apt-get update && apt-get install -y --no-install-recommends debootstrap; } 2>&1 </dev/null) \
        || { tail -n 20 <<<"$said" >&2; fail "debootstrap could not be installed"; }
}

# Prints the tar of the Debian root, made now if it is not cached.
debian_root() {
    local tar work
    tar="$cache/debian-$suite-jre-$(dpkg --print-architecture)-$(digest "$0").tar"
    exec 9>"$cache/debian-root.lock" && flock 9
    if [ ! -f "$tar" ]; then
        [ "$(id -u)" = 0 ] || fail "only root can make the Debian root (debootstrap): run it once as root"
        ensure_debootstrap
        rm -rf "$cache"/debian-*-jre-*.tar "$cache"/.debian-root.*
        work=$(mktemp -d "$cache/.debian-root.XXXXXX")
        say "making a Debian $suite root with $jre"
        debootstrap --variant=minbase --include="$jre" "$suite" "$work/root" >"$work/log" 2>&1 </dev/null \
            || { tail -n 20 "$work/log" >&2; fail "debootstrap failed"; }
        chroot "$work/root" useradd --uid 1000 --create-home --shell /bin/bash appuser
        tar -C "$work/root" --one-file-system --numeric-owner -cf "$work/root.tar" \
            --exclude='./var/cache/apt/*' --exclude='./var/lib/apt/lists/*' --exclude='./var/cache/debconf/*-old' \
            --exclude='./usr/share/doc/*' --exclude='./usr/share/man/*' --exclude='./usr/share/info/*' \
            --exclude='./usr/share/locale/*' --exclude='./usr/share/i18n/*' --exclude='./usr/lib/jvm/*/lib/ct.sym' \
            --exclude='./proc/*' --exclude='./sys/*' --exclude='./dev/*' --exclude='./var/log/*' .
        mv "$work/root.tar" "$tar"
        rm -rf "$work"
    fi
    flock -u 9
    printf '%s\n' "$tar"
}

jars_of() {
    "$python" - "$1" <<'PYTHON'
import sys

from eos_client.errors import EmbeddedKafkaError
from eos_client.testing.java_runtime import find_java
from eos_client.testing.kafka_jars import kafka_jars

try:
    print(kafka_jars(sys.argv[1], find_java(), lambda line: print(line, file=sys.stderr)))
except EmbeddedKafkaError as error:
    sys.exit(f"kafka-image: {error}")
PYTHON
}

build() {
    local version=$1 image="eos-client/kafka:$1" jars recipe root
    jars=$(jars_of "$version")
    recipe=$(digest "$0" "$entry" "$jars/SHA256SUMS")
    if [ "$(docker image inspect --format '{{index .Config.Labels "eos-client.recipe"}}' "$image" 2>/dev/null)" = "$recipe" ]; then
        say "$image is up to date"
        return
    fi
    root=$(debian_root)
    work=$(mktemp -d "$cache/.kafka-image.XXXXXX")
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/kafka/opt/kafka" "$work/kafka/etc/kafka/docker"
    cp -r "$jars" "$work/kafka/opt/kafka/libs"
    install -m 0755 "$entry" "$work/kafka/etc/kafka/docker/run"
    cp "$root" "$work/image.tar"
    tar -C "$work/kafka" --owner=0 --group=0 -rf "$work/image.tar" ./opt/kafka ./etc/kafka
    docker import --change 'USER 1000:1000' --change 'CMD ["/etc/kafka/docker/run"]' --change 'EXPOSE 9092' \
        --change "LABEL eos-client.recipe=$recipe org.opencontainers.image.version=$version" \
        "$work/image.tar" "$image" >/dev/null
    rm -rf "$work"
    say "$image is built ($(docker image inspect --format '{{.Size}}' "$image" | numfmt --to=si)B)"
}

docker version --format '{{.Server.Version}}' >/dev/null 2>&1 \
    || fail "no Docker engine answers: start one, or: eval \"\$(scripts/docker_engine.sh start DIR)\" on Debian as root"
[ -x "$python" ] || fail "$python is missing: run make test once, or name a Python with eos-client in PYTHON"
mkdir -p "$cache"
for version in "${@:-4.3.1}"; do
    build "$version"
done

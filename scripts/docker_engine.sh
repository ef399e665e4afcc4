#!/usr/bin/env bash
# A Docker engine for the Kafka tests, where there is none:
#
#   docker_engine.sh possible      succeeds where an engine answers or can be started, else says why not
#   docker_engine.sh start DIR     starts one on Debian as root, all of it inside DIR, and prints the lines to eval
#                                  before using it; prints nothing where an engine answers already
#   docker_engine.sh stop DIR      stops exactly that engine and removes DIR; nothing where none was started
set -euo pipefail

readonly start_timeout_s=60 stop_timeout_s=30

say() { printf '%s\n' "$*" >&2; }

answers() { command -v docker >/dev/null && timeout 20 docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }

possible() {
    answers && return
    [ -f /etc/debian_version ] || { echo "no Docker engine answers, and this is no Debian to install one on"; return 1; }
    [ "$(id -u)" = 0 ] || { echo "no Docker engine answers, and only root can start one"; return 1; }
}

# apt would start a system-wide engine; ours is to be the only one, and to end.
install_engine() {
    local log=$1 policy=/usr/sbin/policy-rc.d ours=false installed=0
    say "installing docker.io"
    if [ ! -e "$policy" ]; then
        ours=true
        printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
    fi
    { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends docker.io; } \
        </dev/null >"$log" 2>&1 || installed=$?
    if $ours; then rm -f "$policy"; fi
    [ "$installed" = 0 ] || { say "docker.io could not be installed:"; tail -n 20 "$log" >&2; }
    return "$installed"
}

start() {
    local dir=$1 reason
    if answers; then
        say "using the Docker engine that answers ($(docker version --format '{{.Server.Version}}'))"
        return
    fi
    reason=$(possible) || { say "$reason"; return 1; }
    mkdir -p "$dir"
    if ! command -v dockerd >/dev/null || ! command -v docker >/dev/null; then
        install_engine "$dir/apt.log" || { rm -rf "$dir"; return 1; }
    fi
    [ -e /sys/class/net/docker0 ] || touch "$dir/made-bridge"
    # Published ports go through the engine's own proxy, so the machine's packet filter stays as it is.
    setsid dockerd --data-root "$dir/data" --exec-root "$dir/exec" --pidfile "$dir/docker.pid" \
        --host "unix://$dir/docker.sock" --iptables=false --ip6tables=false --log-level warn \
        </dev/null >"$dir/dockerd.log" 2>&1 &
    local engine=$! deadline=$((SECONDS + start_timeout_s))
    export DOCKER_HOST="unix://$dir/docker.sock"
    until answers; do
        if ! kill -0 "$engine" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
            say "the Docker engine did not start; the end of its log:"
            tail -n 30 "$dir/dockerd.log" >&2
            stop "$dir"
            return 1
        fi
        sleep 0.2
    done
    say "started a Docker engine ($(docker version --format '{{.Server.Version}}')) in $dir"
    echo "export DOCKER_HOST='$DOCKER_HOST'"
}

stop() {
    local dir=$1 engine deadline=$((SECONDS + stop_timeout_s))
    [ -d "$dir" ] || return 0
    if [ -f "$dir/docker.pid" ]; then
        engine=$(cat "$dir/docker.pid")
        kill "$engine" 2>/dev/null || true
        while kill -0 "$engine" 2>/dev/null; do
            if [ "$SECONDS" -ge "$deadline" ]; then
                say "the Docker engine did not stop in $stop_timeout_s s: ending it by force"
                kill -KILL "$engine" $(cat "$dir/exec/containerd/containerd.pid" 2>/dev/null) 2>/dev/null || true
                deadline=$((SECONDS + stop_timeout_s))
            fi
            sleep 0.2
        done
    fi
    { grep -oE " $dir/[^ ]+" /proc/self/mounts || true; } | sort -r | while read -r mounted; do
        umount -l "$mounted" || true
    done
    if [ -e "$dir/made-bridge" ] && command -v ip >/dev/null; then ip link delete docker0 2>/dev/null || true; fi
    rm -rf "$dir"
}

case "${1:-} $#" in
    "possible 1") possible ;;
    "start 2") start "$2" ;;
    "stop 2") stop "$2" ;;
    *) say "usage: $0 possible | start DIR | stop DIR"; exit 2 ;;
esac

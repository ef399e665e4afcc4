#!/bin/sh
# Name what is missing on this machine, with the way to get it: scripts/require.sh python PYTHON, or java.
what=$1 python=$2
missing=0
say() {
    echo "$1" >&2
    missing=1
}

if [ "$what" = python ]; then
    if ! command -v "$python" >/dev/null 2>&1; then
        say "Python 3.10 or newer is missing ($python): install it, or name one with make PYTHON=/path/to/python3"
    elif ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
        say "Python 3.10 or newer is needed, $python is $("$python" -V 2>&1): name a newer one with make PYTHON=..."
    elif ! "$python" -c 'import venv, ensurepip' >/dev/null 2>&1; then
        say "Python's venv module is missing: install it (Debian and Ubuntu: apt-get install python3-venv)"
    fi
else
    java=${JAVA_HOME:+$JAVA_HOME/bin/}java
    if ! command -v "$java" >/dev/null 2>&1; then
        say "Java 17 or newer is missing: install it (Debian and Ubuntu: apt-get install openjdk-17-jre-headless), or set JAVA_HOME"
    else
        major=$("$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1)
        [ "${major:-0}" -ge 17 ] || say "Java 17 or newer is needed, $java is ${major:-unknown}: install one, or set JAVA_HOME"
    fi
fi
exit $missing

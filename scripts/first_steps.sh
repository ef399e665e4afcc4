#!/usr/bin/env bash
# What a newcomer does who has only the README, from clone to the first output, in an empty folder, with the time of each
# step: [PYTHON=python3.13] scripts/first_steps.sh [REPOSITORY]. Nothing is taken from a cache of earlier runs but what pip
# keeps.
set -euo pipefail

readonly repository=${1:-$(cd "$(dirname "$0")/.." && pwd)} port=19092
folder=$(mktemp -d /tmp/eos-first-steps.XXXXXX)
cd "$folder"
export XDG_CACHE_HOME=$folder/cache PIP_CACHE_DIR=${PIP_CACHE_DIR:-$HOME/.cache/pip} PYTHONPATH=
broker='' worker=''
trap 'kill $worker $broker 2>/dev/null || true; rm -rf "$folder"' EXIT

readonly started_s=$SECONDS
step() { printf '%4d s  %s\n' $((SECONDS - started_s)) "$1"; }
block() { # the Nth block of a language in the README, at the port of this run
    python3 - "$1" "$2" <<'PY'
import re, sys
page = open("eos-client/README.md").read()
print(re.findall(rf"```{sys.argv[1]}\n(.*?)```", page, re.DOTALL)[int(sys.argv[2])].replace("9092", "19092"))
PY
}

git clone --quiet "$repository" eos-client
step "cloned"
${PYTHON:-python3} -m venv .venv
. .venv/bin/activate
pip install --quiet --disable-pip-version-check './eos-client[cli]'
step "installed"
eos-client broker --port $port >address 2>broker.log &
broker=$!
until [ -s address ]; do sleep 0.2; done
step "the broker is up, its jars downloaded"
eos-client topic create orders invoices --bootstrap localhost:$port
block python 0 >billing.py
python billing.py &
worker=$!
bash -e -c "$(block sh 2)"
step "three orders written, three invoices seen"
kill $worker
wait $worker
step "stopped"

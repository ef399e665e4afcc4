"""The tables of the Spark sinks' parameters are as their signatures are."""

import importlib
import inspect
import re

import pytest

from tests.support.code_blocks import REPOSITORY


@pytest.mark.parametrize(
    ("name", "file"), [("EosKafkaSink", "spark-sink.md"), ("EosDatabaseSink", "spark-database-sink.md")]
)
def test_each_parameter_of_the_sink_is_listed_with_its_default(name: str, file: str) -> None:
    pytest.importorskip("pyspark")
    sink = getattr(importlib.import_module("eos_client.integration.spark"), name)
    page = (REPOSITORY / "docs" / "reference" / file).read_text(encoding="utf-8")
    table = page.partition("## Parameters\n")[2].partition("\n## ")[0]
    listed: dict[str, str] = {}
    for names, default in re.findall(r"^\| (`.*?`) \| (.*?) \|", table, re.MULTILINE):
        listed |= {name: default.strip("`") for name in re.findall(r"`(\w+)`", names)}
    parameters = inspect.signature(sink).parameters.values()
    assert listed == {each.name: shown(each.default) for each in parameters}


def shown(default: object) -> str:
    if default is inspect.Parameter.empty:
        return "needed"
    return default.__name__ if inspect.isfunction(default) else str(default)

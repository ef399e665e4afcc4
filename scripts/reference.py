"""Renews what the pages below docs/ take from the code: public names, settings, events, commands, errors, gate rules.

python -m scripts.reference

A page marks such a part by ``<!-- from the code: NAME -->`` and ``<!-- end -->``; :data:`PARTS` says what is written
between them. tests/pages/test_reference.py fails where a page is out of date.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

import typer

from eos_client import errors, observe
from eos_client.cli import app as command_line
from eos_client.cli.exit_codes import ExitCode
from eos_client.cli.failures import exit_code_of
from eos_client.config import client_settings, loop_config
from eos_client.confluent.ledger.slot_producer import SLOT_DEFAULTS
from eos_client.core.commit_gate import RULES
from tests.recovery import recovery_cases

REPOSITORY = Path(__file__).resolve().parents[1]
DOCS = REPOSITORY / "docs"
PUBLIC_API = REPOSITORY / "tests" / "typing" / "api.py"
COMMAND = "python -m scripts.reference"
T = TypeVar("T")
SIMULATOR, SEAMS = "The simulated cluster", "Seams for tests and extensions"
USES: Mapping[str, tuple[str, ...]] = {
    "The loop": (
        *("ExactlyOnceLoop", "AsyncExactlyOnceLoop", "EosConfig", "OutputRecord", "Record", "DeserializedRecord"),
        "LoopHealth",
    ),
    "A loop of your own": (
        *("EosConsumer", "EosProducer", "Transaction", "Outcome", "ProducerLimits"),
        *("GateSettings", "GateScope", "GatePolicy"),
    ),
    "Tests": (
        *("SimulatedCluster", "record", "EmbeddedKafka", "EmbeddedKafkaCluster", "ContainerKafka", "KafkaBroker"),
        *("EmbeddedPostgres", "EmbeddedMysql"),
    ),
    "Events, metrics, traces, probes": (
        *("Event", "EventHook", "log_event", "Counters", "PrometheusMetrics", "TransactionTracing", "ProbeServer"),
    ),
    "Spark": ("EosKafkaSink", "EosDatabaseSink", "SinkProgress"),
    "Databases": (
        *("DatabaseLoop", "DatabaseConsumer", "OutboxRelay", "create_outbox", "outbox_table", "write_outbox"),
    ),
    SEAMS: (),
    SIMULATOR: (),
}
"""What each name of the page of names is for. Any other is a part of the simulator, or a seam."""
MARKED = re.compile(r"(<!-- from the code: (?P<part>[\w-]+) -->\n).*?(<!-- end -->\n)", re.DOTALL)


def table(*columns: str, rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def one_line(text: str | None) -> str:
    """Return a docstring as Markdown in one line."""
    return re.sub(r"``(.+?)``", r"`\1`", " ".join((text or "").split()))


# -- public names ----------------------------------------------------------------------------------------------------


def public_names() -> dict[str, list[str]]:
    """Return the public names of each module: those that it exports, and those that tests/typing/api.py uses."""
    integrations = (path.stem for path in sorted((REPOSITORY / "integration").iterdir()))
    exporting = [
        *("eos_client", "eos_client.listeners", "eos_client.testing", "eos_client.testing.simulator"),
        *(f"eos_client.integration.{name}" for name in integrations if not name.startswith("_")),
    ]
    names = {module: _exported(importlib.import_module(module)) for module in exporting}
    names["eos_client.observe"] = ["EventHook"]
    for node in ast.parse(PUBLIC_API.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("eos_client"):
            known = names.setdefault(str(node.module), [])
            known += [alias.name for alias in node.names if alias.name not in known]
    return {module: [name for name in found if not _has_a_page(module, name)] for module, found in names.items()}


def _has_a_page(module: str, name: str) -> bool:
    """Whether it is an event, or a module such as ``eos_client.errors``."""
    value = getattr(importlib.import_module(module), name)
    return inspect.ismodule(value) or (
        inspect.isclass(value) and issubclass(value, observe.Event) and value is not observe.Event
    )


def _exported(module: ModuleType) -> list[str]:
    if hasattr(module, "__all__"):
        return list(module.__all__)
    defined = (name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__)
    return sorted(name for name in defined if not name.startswith("_"))


def _api() -> str:
    found: dict[str, list[tuple[str, str, object]]] = {use: [] for use in USES}
    known: set[int] = set()
    for module, names in public_names().items():
        for name in names:
            value = getattr(importlib.import_module(module), name)
            if id(value) not in known:
                known.add(id(value))
                found[_use(module, name)].append((module, name, value))
    return "\n".join(_named(use, sorted(names, key=_place(use))) for use, names in found.items())


def _use(module: str, name: str) -> str:
    by_name = (use for use, names in USES.items() if name in names)
    return next(by_name, SIMULATOR if module == "eos_client.testing.simulator" else SEAMS)


def _place(use: str) -> Callable[[tuple[str, str, object]], tuple[int, str]]:
    order = {name: place for place, name in enumerate(USES[use])}
    return lambda found: (order.get(found[1], len(order)), "" if found[1] in order else found[1])


def _named(use: str, names: Iterable[tuple[str, str, object]]) -> str:
    rows = [(f"`{name}`", f"`{module}`", _first_sentence(value)) for module, name, value in names]
    told = "\n".join(f"::: {module}.{name}\n" for module, name, _ in names)
    return f"## {use}\n\n{table('name', 'import it from', 'what it is', rows=rows)}\n{told}"


def _first_sentence(value: object) -> str:
    documented = value if inspect.isroutine(value) or inspect.isclass(value) else type(value)
    first = one_line(inspect.getdoc(documented)).partition(". ")[0].rstrip(".")
    return f"{first}."


# -- settings --------------------------------------------------------------------------------------------------------


def _loop_settings() -> str:
    (tree,) = (
        node
        for node in ast.parse(inspect.getsource(loop_config)).body
        if isinstance(node, ast.ClassDef) and node.name == loop_config.EosConfig.__name__
    )
    meanings = {
        field.target.id: ast.literal_eval(text.value)
        for field, text in zip(tree.body, tree.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
    rows = ((f"`{f.name}`", _default(f), one_line(meanings.get(f.name))) for f in fields(loop_config.EosConfig))
    return table("setting", "default", "meaning", rows=rows)


def _default(field: Any) -> str:
    if field.default is not MISSING:
        return f"`{field.default!r}`"
    return "needed" if field.default_factory is MISSING else "`{}`"


def _defaults(defaults: Mapping[str, client_settings.Default]) -> Callable[[], str]:
    rows = [(f"`{key}`", f"`{str(d.value).lower()}`", d.reason) for key, d in defaults.items()]
    return lambda: table("setting", "default", "why", rows=rows)


def _refused_settings() -> str:
    rows = (
        (", ".join(f"`{key}={value}`" for value in _spelled(values)), _sentence(reason), _sentence(way_out))
        for key, values, reason, way_out in client_settings.REFUSED
    )
    return table("refused", "why", "way out", rows=rows)


def _spelled(values: frozenset[str]) -> list[str]:
    booleans = sorted(values & {"true", "false"})  # without the other spellings that librdkafka takes
    return booleans or sorted(values)


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


# -- events, errors, gate --------------------------------------------------------------------------------------------


def event_classes() -> list[type[observe.Event]]:
    """Return every event, in the order of the module."""
    return list(_classes_below(observe.Event, observe))


def error_classes() -> list[type[errors.EosError]]:
    """Return every error class of the package, in the order of the module."""
    return list(_classes_below(errors.EosError, errors))


def _classes_below(base: type[T], module: ModuleType) -> Iterator[type[T]]:
    for kind in vars(module).values():
        if inspect.isclass(kind) and issubclass(kind, base) and kind is not base:
            yield kind


def _events() -> str:
    parts = []
    for kind in event_classes():
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
        told = ", ".join(f"`{f.name}: {f.type}`" for f in fields(kind))
        text = one_line(kind.__doc__)
        parts += [f"## {name}", f"`{kind.__name__}`, logged at {kind.level.upper()}. {text}", f"Fields: {told}."]
    return "\n\n".join(parts) + "\n"


ERROR_GROUPS: Mapping[type[errors.EosError], str] = {
    errors.ConfigurationError: "Settings and the cluster",
    errors.RetriableError: "Transactions and their producer",
    errors.WrongThreadError: "Calls that are not allowed",
    errors.OutputRefusedError: "Records",
    errors.RunFencedError: "The Spark sink",
    errors.EmbeddedKafkaError: "Embedded brokers and databases",
}
"""The heading above the first error of each group, in the order of the module."""


def _errors() -> str:
    groups: dict[str, list[tuple[str, str, str]]] = {}
    for kind in error_classes():
        if kind in ERROR_GROUPS:
            rows = groups[ERROR_GROUPS[kind]] = []
        (base,) = (b for b in kind.__bases__ if issubclass(b, errors.EosError))
        below = "" if base is errors.EosError else f", below `{base.__name__}`"
        code = exit_code_of(kind.__new__(kind))
        rows.append((f"`{kind.__name__}`{below}", one_line(kind.__doc__), str(int(code))))
    columns = ("error", "what it means and what to do", "exit code")
    return "\n".join(f"## {group}\n\n{table(*columns, rows=rows)}" for group, rows in groups.items())


def _gate_rules() -> str:
    reasons = [rule.reason.replace("{}", "…") for rule in RULES]
    rows = ((str(n), f"`{rule.name}`", rule.decision.name, reasons[n - 1]) for n, rule in enumerate(RULES, 1))
    return table("", "rule", "decision", "why", rows=rows)


# -- Kafka's error codes, as tests/recovery measures them --------------------------------------------------------------


def _error_codes() -> str:
    rows = (
        [f"`{code}`", *(cell.word.rstrip("!") for cell in recovery_cases.CELLS if cell.code == code)]
        for code in recovery_cases.CODES
    )
    return table("code", *(answered.column for answered in recovery_cases.Answered), rows=rows)


def _code_words() -> str:
    used = {cell.word.rstrip("!") for cell in recovery_cases.CELLS}
    rows = (
        (word, f"`{meaning.error.__name__}`", f"`{meaning.comes_back_by}()`" if meaning.comes_back_by else "nothing")
        for word, meaning in recovery_cases.MEANINGS.items()
        if meaning is not None and word in used
    )
    return table("word", "error", "what brings the producer back", rows=rows)


# -- command line ----------------------------------------------------------------------------------------------------


def _commands() -> str:
    return "\n".join(_command(("eos-client",), typer.main.get_command(command_line.app)))


def _command(names: tuple[str, ...], command: Any) -> Iterator[str]:
    below = getattr(command, "commands", {})
    yield f"## {' '.join(names)}\n\n{_paragraphs(command.help)}\n"
    if command.params:
        rows = (_option(parameter) for parameter in command.params)
        yield table("argument or option", "default", "meaning", rows=rows)
    for name in sorted(below):
        yield from _command((*names, name), below[name])


def _paragraphs(text: str | None) -> str:
    return "\n\n".join(one_line(each) for each in inspect.cleandoc(text or "").split("\n\n"))


def _option(parameter: Any) -> tuple[str, str, str]:
    is_flag, is_listed = getattr(parameter, "is_flag", False), getattr(parameter, "multiple", False)
    value, default = parameter.metavar or parameter.name.upper(), parameter.default
    if isinstance(default, Enum):
        value, default = "/".join(each.value for each in type(default)), default.value
    names = " / ".join([*parameter.opts, *parameter.secondary_opts])
    shown = value if parameter.param_type_name == "argument" else names if is_flag else f"{names} {value}"
    if parameter.required:
        default = "needed"
    elif is_flag and parameter.secondary_opts:
        default = f"`{(parameter.opts if default else parameter.secondary_opts)[0]}`"
    elif default is None or is_flag or is_listed:
        default = ""
    else:
        default = f"`{default}`"
    return f"`{shown}`", default, parameter.help


def _exit_codes() -> str:
    return table("code", "meaning", rows=((str(code.value), code.description) for code in ExitCode))


# -- examples --------------------------------------------------------------------------------------------------------

EXAMPLES = (
    *("hand_written_loop", "survive_a_rebalance", "orders_to_rows_and_receipts"),
    *("consume_transform_produce", "spark_foreach_batch", "spark_to_database"),
)
"""In the order of the page: those that need no broker first."""


def _examples() -> str:
    return "\n".join(_example(REPOSITORY / "examples" / f"{name}.py") for name in EXAMPLES)


def _example(path: Path) -> str:
    """Return the docstring of a program as prose, the command in it as a block, and then the code."""
    source = path.read_text(encoding="utf-8")
    (docstring, *_) = ast.parse(source).body
    first, command, *others = inspect.cleandoc(ast.get_docstring(ast.parse(source)) or "").split("\n\n")
    prose = "\n\n".join(text.replace("``", "`") for text in others)
    code = "\n".join(source.splitlines()[docstring.end_lineno :]).strip()
    without_optional = re.sub(r" \[.*?\]", "", inspect.cleandoc(command))
    shell = f"```sh\n{without_optional}\n```"
    return f"## {path.name}\n\n{first}\n\n{shell}\n\n{prose}\n\n```python\n{code}\n```\n"


PARTS: Mapping[str, Callable[[], str]] = {
    "api": _api,
    "loop-settings": _loop_settings,
    "refused-settings": _refused_settings,
    "consumer-defaults": _defaults(client_settings.SAFE_CONSUMER),
    "producer-defaults": _defaults(client_settings.SAFE_PRODUCER),
    "transaction-defaults": _defaults(client_settings.FAST_TRANSACTIONS),
    "slot-defaults": _defaults(SLOT_DEFAULTS),
    "events": _events,
    "errors": _errors,
    "error-codes": _error_codes,
    "error-code-words": _code_words,
    "gate-rules": _gate_rules,
    "commands": _commands,
    "exit-codes": _exit_codes,
    "examples": _examples,
}


def renewed(page: str) -> str:
    """Return the text of a page with its parts as they should be."""
    return MARKED.sub(lambda found: f"{found[1]}\n{PARTS[found['part']]()}\n{found[3]}", page)


def pages() -> list[Path]:
    """Return the pages that have such a part."""
    return [path for path in sorted(DOCS.rglob("*.md")) if MARKED.search(path.read_text(encoding="utf-8"))]


if __name__ == "__main__":
    for each in pages():
        each.write_text(renewed(each.read_text(encoding="utf-8")), encoding="utf-8")

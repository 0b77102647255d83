"""How a command is declared: a function whose signature, or record of options, and docstring are its help."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_args, get_type_hints

from unpool.cli.console import say_report, set_up_log
from unpool.cli.errors import OK, guard
from unpool.cli.options import Parser


@dataclass(frozen=True)
class CommandResult:
    """The result of a command: lines for people, the same as a document for `--json`, and the exit code."""

    lines: Iterable[str]
    document: Any = None
    code: int = OK


def command(work: Callable[..., CommandResult | int | None]) -> Callable[..., int]:
    """The function as a command: expected errors become one line, its CommandResult is printed, its exit code returned.

    Parameters named `as_json`, `quiet` and `verbose` are the options of every command that has them. `app.COMMANDS`
    lists the commands. They import in their body what takes long to load: `unpool --help` imports every command.
    A function that takes one dataclass has an option per field of it, declared there as a parameter is.
    """
    first = next(iter(signature(work).parameters.values())).annotation
    record: Any = first if is_dataclass(first) else None

    @wraps(work)
    def run(**arguments: Any) -> int:
        quiet = arguments.get("quiet", False)
        with guard(quiet=quiet):
            if "verbose" in arguments:
                set_up_log(arguments["verbose"])
            result = work(**arguments) if record is None else work(record(**_values(record, arguments)))
            if not isinstance(result, CommandResult):
                return result or OK
            say_report(result.lines, result.document, arguments.get("as_json", False), quiet)
            return result.code

    if record is not None:
        parameters = [_parameter(record, field) for field in fields(record)]
        run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _parameter(record: type, field: Field[Any]) -> Parameter:
    """The parameter of a command for a field of a record; a field that is parsed takes a text."""
    kind = get_type_hints(record, include_extras=True)[field.name]
    if _parser(kind) is not None:
        kind = Annotated[str | None, get_args(kind)[1]]
    default = Parameter.empty if field.default is MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _values(record: type, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the fields of a record for the arguments of a command."""
    kinds, values = get_type_hints(record, include_extras=True), dict(arguments)
    for name, value in arguments.items():
        parsed = _parser(kinds[name])
        if parsed is not None and value is not None:
            values[name] = parsed.parse(f"--{name.replace('_', '-')}", value)
    return values


def _parser(kind: Any) -> Parser | None:
    """The parser in the annotation of a field."""
    return next((each for each in get_args(kind) if isinstance(each, Parser)), None)

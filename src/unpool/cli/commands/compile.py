"""`unpool compile`: a model for onnxruntime in programs without Python."""

from collections.abc import Sequence
from typing import Annotated

import typer

from unpool.cli import options
from unpool.cli.command import CommandResult, command
from unpool.cli.errors import UsageError


@command
def compile(
    model: options.ModelPath,
    output: options.ModelOutput,
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="NAME=SIZES", help="Shape of an input, such as x=1,3,480,640; repeatable."),
    ] = None,
    level: Annotated[
        str,
        typer.Option(help="Lowest level of the processors that run the model, such as x86-64-v3."),
    ] = "native",
    force: options.Force = False,
    exact: Annotated[bool, options.Flag("--exact", help="Every MaxPool in unpool; no fast algorithms.")] = False,
    compat: options.CompatWord = options.Compat.SPEC,
    index_space: options.IndexWord = options.IndexSpace.AUTO,
    as_json: options.Json = False,
    quiet: options.Quiet = False,
) -> CommandResult:
    """Write a model for programs in C, C++, C#, Java or Rust that run it by onnxruntime with unpool's library.

    Example: unpool compile segnet.onnx --shape image=1,3,480,640 -o segnet-compiled.onnx
    """
    from unpool.cli.commands.rewrite import data_words, output_file
    from unpool.graph.load import load_for_command
    from unpool.onnxruntime import compile as compile_model
    from unpool.onnxruntime import get_library_path

    arguments = options.semantics(compat, index_space)
    writer = output_file(model, output, force)
    load_for_command(model)
    compiled = compile_model(model, shapes=shape_sets(shape or ()), level=level, exact=exact, **arguments)
    count = sum(node.domain == "unpool" for node in compiled.graph.node)
    data = writer.write(compiled)
    library = get_library_path()
    lines = [
        f"{output}{data_words(data)}: {count or 'no'} node{'s' * (count != 1)} of unpool",
        f"run it with {library} and the configuration entry unpool.trust_plans=1",
    ]
    document = {
        "model": str(model), "output": str(output), "data": list(map(str, data)), "nodes": count,
        "library": library,
    }  # fmt: skip
    return CommandResult(lines, document)


def shape_sets(shapes: Sequence[str]) -> list[dict[str, tuple[int, ...]]]:
    """The shapes of all inputs, from options such as `x=1,3,480,640`: one set, or one for each shape of an input.

    >>> shape_sets(["x=1,3,8,8", "x=1,3,16,16", "scale=1"])
    [{'x': (1, 3, 8, 8), 'scale': (1,)}, {'x': (1, 3, 16, 16), 'scale': (1,)}]
    """
    by_name: dict[str, list[tuple[int, ...]]] = {}
    for option in shapes:
        name, equals, text = option.rpartition("=")
        sizes = text.split(",")
        if not (name and equals and all(size.isdecimal() and int(size) < 2**31 for size in sizes)):
            raise UsageError(f"--shape: expected NAME=SIZES such as x=1,3,480,640, got {option!r}.")
        by_name.setdefault(name, []).append(tuple(map(int, sizes)))
    count = max(map(len, by_name.values()), default=1)
    for name, given in by_name.items():
        if len(given) not in (1, count):
            fact = f"expected one shape of {name}, or {count} as of another input; got {len(given)}"
            raise UsageError(f"--shape: {fact}. Give --shape {name}=... again.")
    return [{name: given[number % len(given)] for name, given in by_name.items()} for number in range(count)]

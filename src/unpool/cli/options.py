"""Arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from unpool.cli.option_values import Compat, IndexSpace, Provider

ModelPath = Annotated[Path, typer.Argument(help="ONNX file.", show_default=False)]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print errors and warnings only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log what is copied, cast or left out, on stderr.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads.", show_default="all cores")]
CompatWord = Annotated[
    Compat, typer.Option("--compat", help="Follow the standard's text, or onnxruntime where they differ.")
]
IndexWord = Annotated[
    IndexSpace,
    typer.Option("--index-space", help="Where MaxUnpool counts indices when output_shape is given."),
]
ModelOutput = Annotated[Path, typer.Option("-o", "--output", help="ONNX file to write.", show_default=False)]
ProviderWord = Annotated[
    Provider,
    typer.Option(
        "--provider",
        help="Who runs what unpool does not; openvino where it runs that as written; cuda with unpool on a GPU too.",
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Let -o replace the model that is read, and its data files.")]
Size = Annotated[
    list[str] | None,
    typer.Option("--size", metavar="NAME=NUMBER", help="A size that the model leaves open, for comparing."),
]
Exact = Annotated[
    bool,
    typer.Option("--exact", help="Let unpool run every MaxPool, and compute every product as the model writes it."),
]

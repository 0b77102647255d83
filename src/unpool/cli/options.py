"""Arguments and options that several commands share."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from unpool.cli.option_values import Compat, IndexSpace, Provider

Flag = partial(typer.Option, metavar="")
"""An option that takes no value, and whose help shows none."""

Choice = partial(typer.Option, case_sensitive=False)
"""An option that takes one of a few words, in capitals or not."""

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="ONNX file.", show_default=False)]
Quiet = Annotated[bool, Flag("--quiet", "-q", help="Print errors and warnings only.")]
Verbose = Annotated[bool, Flag("--verbose", "-v", help="Log what is copied, cast or left out, on stderr.")]
Json = Annotated[bool, Flag("--json", help="Print the result as JSON on stdout.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Number of threads.", show_default="all cores")]
CompatWord = Annotated[Compat, Choice("--compat", help="Follow the standard's text, or onnxruntime where they differ.")]
IndexWord = Annotated[
    IndexSpace,
    Choice("--index-space", help="Where MaxUnpool counts indices when output_shape is given."),
]
ModelOutput = Annotated[Path, typer.Option("-o", "--output", help="ONNX file to write.", show_default=False)]
ProviderWord = Annotated[
    Provider,
    Choice(
        "--provider",
        help="Who runs what unpool does not; openvino where it runs that as written; cuda with unpool on a GPU too.",
    ),
]
Force = Annotated[bool, Flag("--force", help="Let -o replace the model that is read, and its data files.")]
Size = Annotated[
    list[str] | None,
    typer.Option("--size", metavar="NAME=NUMBER", help="A size that the model leaves open, for comparing."),
]
Exact = Annotated[
    bool,
    Flag("--exact", help="Let unpool run every MaxPool, and compute every product as the model writes it."),
]

"""The command `unpool run`: `cli/run_config.py` has its options, `cli/run.py` the work."""

from unpool.cli.command import command
from unpool.cli.errors import FINDINGS, OK
from unpool.cli.run_config import RunConfig


@command
def run(config: RunConfig) -> int:
    """Run a model on arrays or images and write its outputs.

    Example: unpool run model.onnx -i photo.png -o mask.png --scale 1/255 --argmax
    """
    from unpool.cli.cluster import run as run_on_cluster
    from unpool.cli.progress import print_outcome, progress
    from unpool.cli.run import run as run_items

    display = progress(config.quiet)
    outcome = run_items(config, display) if config.scheduler is None else run_on_cluster(config, display)
    print_outcome(outcome, config.model, config.as_json, config.quiet)
    return FINDINGS if outcome.failed else OK

"""Ends with an error unless a tag may be released: it is the version, and its commit is on main, where CI passed.

    python packaging/check_tag.py v1.0.0 < runs.json

Run it in a clone whose HEAD is the commit of the tag, and which has origin/main. `runs.json` is GitHub's answer for the
runs of ci.yml: https://docs.github.com/rest/actions/workflow-runs#list-workflow-runs-for-a-workflow
"""

import json
import re
import subprocess
import sys
from pathlib import Path


def problem(tag: str, runs: str) -> str:
    """Why the tag must not be released; empty if it may."""
    found = re.search(r'^__version__ = "(.+)"$', Path("src/unpool/__init__.py").read_text("utf-8"), re.MULTILINE)
    version = found[1] if found else ""
    if tag != f"v{version}":
        return f"the version is {version}. Tag it v{version}, or change src/unpool/__init__.py"
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], text=True).strip()
    command = ["git", "merge-base", "--is-ancestor", commit, "origin/main"]
    if subprocess.run(command, check=False).returncode:
        return f"{commit} is not a commit of main. Tag one that is"
    ended = [run["conclusion"] for run in json.loads(runs)["workflow_runs"] if run["head_sha"] == commit]
    if not ended or ended[0] != "success":
        return f"CI of {commit} has not passed ({ended[0] if ended else 'no run'}). Wait for it, or tag another commit"
    return ""


if __name__ == "__main__":
    said = problem(sys.argv[1], sys.stdin.read())
    sys.exit(f"{sys.argv[1]}: {said}." if said else 0)

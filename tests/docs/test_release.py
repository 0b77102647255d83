"""What a release needs agrees: versions, platforms, and workflows whose actions are pinned."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import unpool
from tests.support.packages import pins
from unpool.build.targets import TARGETS

ROOT = Path(__file__).parents[2]
RELEASE = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))["jobs"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.parametrize("file", ["CITATION.cff", "packaging/conda/recipe.yaml"])
def test_versions_agree(file):
    """With the version of the package, which pyproject.toml reads from its source."""
    text = (ROOT / file).read_text(encoding="utf-8")
    assert re.search(r'^ *version: "?([\d.]+)"?$', text, re.MULTILINE)[1] == unpool.__version__


def test_the_recipe_has_the_packages_of_the_project():
    """With the same oldest versions; conda has no extras, so it has those of whole models, and Numba."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    recipe = (ROOT / "packaging" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    run = [requirement for requirement in extras["run"] if requirement != "unpool[jit]"]
    wanted = [*project["dependencies"], *extras["jit"], *run, f"python{project['requires-python']}"]
    assert sorted(re.findall(r"^    - (\w+ >=.*)$", recipe, re.MULTILINE)) == sorted(
        line.replace(">=", " >=", 1) for line in wanted
    )


def test_every_platform_is_built():
    """By the script that makes a release."""
    loop = re.search(r"for target in (.*); do", (ROOT / "packaging" / "build").read_text(encoding="utf-8"))[1]
    assert sorted(loop.split()) == sorted(TARGETS)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned(path):
    """To a commit, with its version beside it; and nothing but the last job may write anything."""
    text = path.read_text(encoding="utf-8")
    uses = re.findall(r"uses: (.*)", text)
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", each) for each in uses), uses
    assert "permissions:\n  contents: read\n" in text
    assert text.count(": write") == (2 if path.name == "release.yml" else 0)


def commands(job):
    """What the steps of a job of release.yml run, in order."""
    return [step["run"] for step in RELEASE[job]["steps"] if "run" in step]


def test_releases_install_by_digest_or_by_name_of_a_file():
    """Nothing that builds or tests a published file asks an index without digests; unpool itself is never looked up."""
    found = [line for job in RELEASE for line in commands(job) if "pip " in line]
    sources = [line for line in found if "--require-hashes" not in line]
    assert all("--only-binary :all:" in line for line in found if line not in sources)
    assert all("--no-index --no-deps" in line for line in sources)
    assert [line.split()[-1] for line in sources] == [".", 'dist/unpool-*-"$WHEEL".whl', "dist/unpool-*.tar.gz"]
    assert "-m build --no-isolation" in (build := (ROOT / "packaging" / "build").read_text(encoding="utf-8"))
    assert build.count("-m build ") == build.count("-m build --no-isolation")


@pytest.mark.parametrize("name", ["release.txt", "wheel.txt"])
def test_tools_of_a_release_are_pinned_by_digest(name):
    """In the versions that the tests passed with, where those have the package."""
    found, known = pins(f".ci/{name}"), pins(".ci/constraints.txt")
    assert all(known.get(package, version) == version for package, version in found.items())
    blocks = re.split(r"\n(?=\w)", (ROOT / ".ci" / name).read_text(encoding="utf-8"))[1:]
    assert len(blocks) == len(found)
    assert all("--hash=sha256:" in block for block in blocks)


def test_every_wheel_is_tested_on_its_system():
    """Each file that the build writes: five wheels, and the source distribution."""
    rows = RELEASE["test"]["strategy"]["matrix"]["include"]
    assert sorted(row["wheel"] for row in rows) == sorted(target.tag for target in TARGETS.values())
    assert "numba" not in pins(".ci/wheel.txt")


def test_what_is_published_is_what_was_tested():
    """Every job with files compares them with the digests of the build before it does anything else with them."""
    assert RELEASE["build"]["needs"] == "tag"
    for job in ("test", "source", "publish"):
        steps = RELEASE[job]["steps"]
        folders = ["dist", "archives"] if job == "publish" else ["dist"]
        for got in (number for number, step in enumerate(steps) if "download-artifact" in step.get("uses", "")):
            folder = steps[got]["with"]["name"]
            variable, output = ("DIGESTS", "digests") if folder == "dist" else ("ARCHIVES", "archives")
            assert re.fullmatch(rf'python3? packaging/digests.py {folder} "\${variable}"', steps[got + 1]["run"])
            assert RELEASE[job]["env"][variable] == f"${{{{ needs.build.outputs.{output} }}}}"
            folders.remove(folder)
        assert not folders
    assert RELEASE["publish"]["needs"] == ["build", "test", "source"]


def script(name, *arguments, given="", folder=ROOT):
    """What a script of packaging/ says, and its exit code."""
    command = [sys.executable, str(ROOT / "packaging" / name), *arguments]
    done = subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("change", [None, "changed", "added", "removed"])
def test_digests_are_those_of_all_files(tmp_path, change):
    """A file that is changed, added or removed after the build is named."""
    for name in ("a.whl", "b.tar.gz"):
        (tmp_path / name).write_text(name)
    code, built = script("digests.py", str(tmp_path))
    assert code == 0
    if change == "removed":
        (tmp_path / "a.whl").unlink()
    elif change:
        (tmp_path / {"changed": "a.whl", "added": "c.whl"}[change]).write_text("other")
    code, said = script("digests.py", str(tmp_path), built.strip())
    assert (code, bool(said)) == ((1, True) if change else (0, False))
    assert not change or {"changed": "a.whl", "added": "c.whl", "removed": "a.whl"}[change] in said


@pytest.fixture
def clone(tmp_path):
    """A clone of the version 1.2.3 whose HEAD is on main; `git` runs a command in it."""
    source = tmp_path / "src" / "unpool" / "__init__.py"
    source.parent.mkdir(parents=True)
    source.write_text('__version__ = "1.2.3"\n')
    names = ("-c", "user.name=x", "-c", "user.email=x@example.org")

    def git(*words):
        return subprocess.check_output(["git", *names, *words], cwd=tmp_path, text=True).strip()

    git("init", "--quiet")
    git("add", "src")
    git("commit", "--quiet", "--message", "version")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    return tmp_path, git


@pytest.mark.parametrize(
    ("tag", "conclusions", "says"),
    [
        ("v1.2.3", ["success"], ""),
        ("v1.2.3", ["success", "failure"], ""),  # the newest run comes first
        ("v1.2.4", ["success"], "the version is 1.2.3"),
        ("1.2.3", ["success"], "the version is 1.2.3"),
        ("v1.2.3", ["failure"], "has not passed (failure)"),
        ("v1.2.3", [None], "has not passed (None)"),
        ("v1.2.3", [], "has not passed (no run)"),
    ],
)
def test_a_tag_is_the_version_of_a_commit_that_passed(clone, tag, conclusions, says):
    """CI is asked about this very commit."""
    folder, git = clone
    runs = [{"head_sha": git("rev-parse", "HEAD"), "conclusion": each} for each in conclusions]
    code, said = script("check_tag.py", tag, given=json.dumps({"workflow_runs": runs}), folder=folder)
    assert (code, says in said, bool(said)) == (int(bool(says)), True, bool(says))


def test_a_tag_is_on_main(clone):
    """A commit of a branch is refused, even if CI passed there; so is one of main whose runs are another one's."""
    folder, git = clone
    git("commit", "--quiet", "--allow-empty", "--message", "branch")
    runs = json.dumps({"workflow_runs": [{"head_sha": git("rev-parse", "HEAD"), "conclusion": "success"}]})
    assert "is not a commit of main" in script("check_tag.py", "v1.2.3", given=runs, folder=folder)[1]
    git("checkout", "--quiet", "HEAD~1")
    assert "has not passed (no run)" in script("check_tag.py", "v1.2.3", given=runs, folder=folder)[1]

"""What is published: the package's metadata, the pinned requirements and server.json agree with the code."""

import json
import os
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import jsonschema
import pytest

import middleout_mcp
from middleout_mcp.settings import Settings

ROOT = Path(__file__).parents[1]
SERVER = json.loads((ROOT / "server.json").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DATA = Path(os.environ.get("MIDDLEOUT_EVAL_DATA") or ROOT.parent / "shared" / "data")
SCHEMA = DATA / "mcp-server.schema.json"
REQUIREMENTS = sorted((ROOT / ".ci").glob("requirements*.txt"))


def pinned(requirements: Path) -> dict[str, list[str]]:
    """The lines of a requirements file, options joined: name → everything after it."""
    text = requirements.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    pins: dict[str, list[str]] = {}
    for line in lines:
        name, _, rest = line.partition("==")
        pins.setdefault(name, []).append(rest)
    return pins


def names(requirements: list[str]) -> set[str]:
    """The packages that requirement strings name."""
    return {re.split(r"[\s;<>=!\[]", requirement)[0] for requirement in requirements}


def test_server_json_has_the_version_of_the_package() -> None:
    assert SERVER["version"] == middleout_mcp.__version__
    assert [package["version"] for package in SERVER["packages"]] == [middleout_mcp.__version__]


def test_server_json_names_this_package_and_is_claimed_by_the_readme() -> None:
    assert SERVER["name"] == "io.github.middleout-mcp/middleout-mcp"
    assert f"<!-- mcp-name: {SERVER['name']} -->" in README
    assert [package["identifier"] for package in SERVER["packages"]] == [PROJECT["name"]]


def test_server_json_is_short_local_and_names_no_registry() -> None:
    assert len(SERVER["description"]) <= 100
    for package in SERVER["packages"]:
        assert package["transport"] == {"type": "stdio"}
        assert "registryBaseUrl" not in package
        for variable in package["environmentVariables"]:
            assert variable["name"].removeprefix("MIDDLEOUT_").lower() in Settings.model_fields


@pytest.mark.skipif(not SCHEMA.is_file(), reason="the schema of server.json is not at hand")
def test_server_json_is_valid() -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.validate(SERVER, schema, cls=jsonschema.Draft7Validator)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**SERVER, "version": 1}, schema, cls=jsonschema.Draft7Validator)


@pytest.mark.parametrize("requirements", REQUIREMENTS, ids=lambda path: path.name)
def test_each_requirement_is_pinned_with_hashes_and_from_nowhere_in_particular(requirements: Path) -> None:
    for name, pins in pinned(requirements).items():
        assert re.fullmatch(r"[a-z0-9-]+", name), name
        assert all(re.match(r"[\w.]+ .*--hash=sha256:[0-9a-f]{64}", pin) for pin in pins), name
    text = requirements.read_text(encoding="utf-8")
    assert not re.search(r"://|^-|--index|--find|/work|/opt|/home", text, re.MULTILINE)


def test_the_pinned_requirements_cover_what_the_package_asks_for() -> None:
    run, dev = (set(pinned(ROOT / ".ci" / name)) for name in ("requirements.txt", "requirements-dev.txt"))
    assert names(PROJECT["dependencies"]) <= run
    assert run | names(PROJECT["optional-dependencies"]["dev"]) <= dev


def test_each_declared_dependency_is_installed_and_used() -> None:
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "middleout_mcp").rglob("*.py"))
    unused = {
        name
        for name in names(PROJECT["dependencies"])
        if metadata.version(name) and not re.search(rf"\b{name.replace('-', '_')}\b", source)
    }
    assert unused == {"litellm", "tzdata"}  # the first waits for a model that writes summaries, the other is data


def test_the_package_runs_as_a_module_and_tells_its_version() -> None:
    command = [sys.executable, "-m", "middleout_mcp", "--version"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stdout.split()[-1] == middleout_mcp.__version__


def test_the_changelog_tells_of_this_version() -> None:
    assert f"## [{middleout_mcp.__version__}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")

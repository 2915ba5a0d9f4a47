"""The README says what is so: its commands exist, its snippets parse, and nothing a user can set or call is missing."""

import json
import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import click
import pytest

from middleout_mcp.cli.commands import cli
from middleout_mcp.server.mcp_server import build_server
from middleout_mcp.settings import Settings
from tests.server.connect import new_app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SCRIPT = "middleout-mcp"


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def section(title: str) -> str:
    """The text below a heading, up to the next one of the same rank."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, f"no section {title}"
    return found[1]


def set_up_lines() -> list[str]:
    """The two commands of the section `Try it`, as they are to be pasted."""
    return [block.strip() for block in blocks("sh") if block.startswith("python3 -m venv")]


def row(name: str) -> str:
    """The row of the settings table that a setting must have."""
    field = Settings.model_fields[name]
    plain = str(field.default).lower() if isinstance(field.default, bool) else field.default
    default = "" if field.default in (None, ()) else f"`{plain}`"
    return f"| `MIDDLEOUT_{name.upper()}` | {field.description} | {default} |"


def client_entries() -> list[dict[str, object]]:
    """What the JSON snippets tell clients to start; VS Code names it `servers`, the others `mcpServers`."""
    snippets = [json.loads(block) for block in blocks("json")]
    return [entry for snippet in snippets for entry in (snippet.get("mcpServers") or snippet["servers"]).values()]


def test_two_commands_of_one_line_each_set_themselves_up() -> None:
    demo, tests = set_up_lines()
    for line in (demo, tests):
        assert "\n" not in line
        assert "--require-hashes -r .ci/requirements" in line
        for name in re.findall(r"-r (\S+)", line):
            assert (ROOT / name).is_file()
    assert demo.endswith(f".venv/bin/{SCRIPT} demo")
    assert tests.endswith(".venv/bin/pytest")


def test_each_snippet_starts_the_script_with_arguments_it_takes() -> None:
    entries = client_entries()
    assert len(entries) == 3
    for entry in entries:
        assert Path(str(entry["command"])).name == SCRIPT
        cli.make_context(SCRIPT, list(entry.get("args", ())), resilient_parsing=True)
        for variable in entry.get("env", {}):
            assert variable.removeprefix("MIDDLEOUT_").lower() in Settings.model_fields
    assert [entry["type"] for entry in entries if "type" in entry] == ["stdio"]


def test_each_setting_is_documented_with_its_description_and_default() -> None:
    rows = [line for line in section("Settings").splitlines() if line.startswith("| `MIDDLEOUT_")]
    assert rows == [row(name) for name in Settings.model_fields]


def test_the_settings_file_shown_is_accepted() -> None:
    (shown,) = blocks("toml")
    assert Settings(**tomllib.loads(shown)).timezone == "Europe/Berlin"


def test_each_variable_named_is_a_setting() -> None:
    named = set(re.findall(r"MIDDLEOUT_[A-Z_]+", README))
    assert named <= {f"MIDDLEOUT_{name.upper()}" for name in Settings.model_fields}


def test_each_command_and_each_option_is_documented() -> None:
    text = section("Commands")
    context = click.Context(cli)
    for name in cli.list_commands(context):
        assert f"`{SCRIPT} {name}`" in text
        command = cli.get_command(context, name)
        assert command is not None
        for parameter in (*command.params, *cli.params):
            for option in parameter.opts:
                assert option in text, f"{option} of {name}"


def test_each_option_of_a_command_that_is_named_exists() -> None:
    context = click.Context(cli)
    commands = [cli, *(cli.get_command(context, name) for name in cli.list_commands(context))]
    options = {option for command in commands if command for each in command.params for option in each.opts}
    assert set(re.findall(r"`(--[a-z-]+)", section("Commands"))) <= options | {"--help", "--version"}


def test_each_command_named_exists() -> None:
    named = set(re.findall(rf"`{SCRIPT} ([a-z]+)", README))
    assert named == set(cli.list_commands(click.Context(cli)))


@pytest.mark.anyio
async def test_each_tool_prompt_and_resource_is_documented_and_no_other(tmp_path: Path) -> None:
    server = build_server(new_app(tmp_path))
    tools = re.findall(r"^\| `([a-z_]+)` \|", section("The tools"), re.MULTILINE)
    assert sorted(tools) == sorted(tool.name for tool in await server.list_tools())
    for prompt in await server.list_prompts():
        assert f"`{prompt.name}`" in section("Connect a client")
    uris = [str(resource.uri) for resource in await server.list_resources()]
    uris += [template.uri_template for template in await server.list_resource_templates()]
    for uri in uris:
        assert re.sub(r"\{\?.*?\}", "", uri) in section("The tools")


def test_links_and_pictures_lead_to_files_and_nowhere_else() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", README):
        assert not urlsplit(target).scheme, target
        assert (ROOT / target).is_file(), target


@pytest.mark.slow
@pytest.mark.parametrize("command", set_up_lines()[:1])
def test_the_demo_command_works_in_a_fresh_checkout(command: str, tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    shutil.copytree(ROOT, checkout, ignore=shutil.ignore_patterns(".git", ".venv", "__pycache__", ".*_cache"))
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    run = subprocess.run(["bash", "-c", command], cwd=checkout, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "FAILED" not in run.stdout

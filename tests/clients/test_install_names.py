"""Which entry is ours, what becomes of others of that name, and the files of projects."""

from pathlib import Path

import pytest

from middleout_mcp.clients import jsonc
from middleout_mcp.clients.install import look
from middleout_mcp.clients.places import CLIENTS
from middleout_mcp.errors import ClientFileError
from tests.clients.machines import ENTRY, config_of, install, machine, write

OTHER = '{"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"]}'


def names(file: Path) -> list[str]:
    return list(jsonc.read(file.read_text())["mcpServers"])


def test_another_server_named_memory_keeps_its_name(tmp_path: Path) -> None:
    on = machine(tmp_path)
    file = write(config_of("cursor", on), f'{{"mcpServers": {{"memory": {OTHER}}}}}')
    before = file.read_text()
    assert install("cursor", on).name == "middleout-mcp"
    assert OTHER in file.read_text()
    assert names(file) == ["memory", "middleout-mcp"]
    assert not install("cursor", on).changed
    with pytest.raises(ClientFileError, match="--name"):
        install("cursor", on, name="memory")
    with pytest.raises(ClientFileError, match="--name"):
        install("cursor", on, None, name="memory")
    install("cursor", on, None)
    assert file.read_text() == before


def test_where_both_names_are_taken_one_is_asked_for(tmp_path: Path) -> None:
    on = machine(tmp_path)
    file = write(config_of("cursor", on), f'{{"mcpServers": {{"memory": {OTHER}, "middleout-mcp": {OTHER}}}}}')
    with pytest.raises(ClientFileError, match="choose a name with --name"):
        install("cursor", on)
    assert install("cursor", on, name="mine").name == "mine"
    assert install("cursor", on, None).action == "removed"
    assert names(file) == ["memory", "middleout-mcp"]


def test_our_entry_is_updated_under_the_name_the_user_gave_it(tmp_path: Path) -> None:
    on = machine(tmp_path)
    own = (
        '"brain": {"command": "uvx", "args": ["middleout-mcp"], "env": {"MIDDLEOUT_TIMEZONE": "UTC"}, "disabled": true}'
    )
    file = write(config_of("cursor", on), f'{{\n  // mine\n  "mcpServers": {{\n    {own}\n  }}\n}}')
    assert look(CLIENTS["cursor"], on, ENTRY, None).connected == "differently"
    report = install("cursor", on)
    assert (report.name, report.action) == ("brain", "updated")
    entry = jsonc.read(file.read_text())["mcpServers"]["brain"]
    assert entry == {**ENTRY, "env": {"MIDDLEOUT_TIMEZONE": "UTC"}, "disabled": True}
    assert look(CLIENTS["cursor"], on, ENTRY, None).connected == "yes"


def test_of_several_entries_of_ours_one_must_be_named(tmp_path: Path) -> None:
    on = machine(tmp_path)
    write(config_of("cursor", on), "{}")
    install("cursor", on, name="work")
    install("cursor", on, name="home")
    with pytest.raises(ClientFileError, match="work, home"):
        install("cursor", on, None)
    assert install("cursor", on, None, name="work").action == "removed"
    assert names(config_of("cursor", on)) == ["home"]


def test_taking_out_what_is_not_there_changes_nothing(tmp_path: Path) -> None:
    on = machine(tmp_path)
    for client in CLIENTS:
        report = install(client, on, None)
        assert (report.action, report.changed) == ("not connected", False)
    assert list(tmp_path.iterdir()) == []


def test_after_later_changes_only_our_entry_goes(tmp_path: Path) -> None:
    on = machine(tmp_path)
    file = write(config_of("cursor", on), '{\n  "theme": 1\n}\n')
    install("cursor", on)
    file.write_text(file.read_text().replace('"theme": 1', '"theme": 2'))
    install("cursor", on, None)
    assert file.read_text() == '{\n  "theme": 2,\n  "mcpServers": {}\n}\n'


@pytest.mark.parametrize("client", [name for name, client in CLIENTS.items() if client.project])
def test_a_project_has_a_file_of_its_own(tmp_path: Path, client: str) -> None:
    on = machine(tmp_path / "home")
    project = tmp_path / "tea"
    project.mkdir()
    report = install(client, on, project=project)
    assert report.file == project / (CLIENTS[client].project or "")
    assert report.file.is_file()
    assert not (tmp_path / "home").exists()
    assert look(CLIENTS[client], on, ENTRY, project).connected == "yes"
    assert look(CLIENTS[client], on, ENTRY, None).connected == "no"


def test_a_client_without_project_files_gets_the_project_in_its_own(tmp_path: Path) -> None:
    on = machine(tmp_path)
    assert install("claude-desktop", on, project=tmp_path).file == config_of("claude-desktop", on)


def test_a_comment_in_the_entry_survives_an_update(tmp_path: Path) -> None:
    on = machine(tmp_path)
    file = write(
        config_of("vscode", on),
        '{\n\t"servers": {\n\t\t"memory": {\n\t\t\t// the big one\n\t\t\t"type": "stdio",\n'
        '\t\t\t"command": "/old/middleout-mcp", // here\n\t\t},\n\t},\n}\n',
    )
    install("vscode", on, {"command": "/new/middleout-mcp"})
    assert file.read_text() == (
        '{\n\t"servers": {\n\t\t"memory": {\n\t\t\t// the big one\n\t\t\t"type": "stdio",\n'
        '\t\t\t"command": "/new/middleout-mcp", // here\n\t\t},\n\t},\n}\n'
    )

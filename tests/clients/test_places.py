"""Where each client keeps its file, on all three platforms, and the variables that move it."""

from pathlib import Path

import pytest

from middleout_mcp.clients.places import CLIENTS, VARIABLES
from tests.clients.machines import PLATFORMS, config_of, machine, write

EXPECTED = {
    "claude-desktop": {
        "linux": ".config/Claude/claude_desktop_config.json",
        "darwin": "Library/Application Support/Claude/claude_desktop_config.json",
        "win32": "AppData/Roaming/Claude/claude_desktop_config.json",
    },
    "claude-code": dict.fromkeys(PLATFORMS, ".claude.json"),
    "cursor": dict.fromkeys(PLATFORMS, ".cursor/mcp.json"),
    "vscode": {
        "linux": ".config/Code/User/mcp.json",
        "darwin": "Library/Application Support/Code/User/mcp.json",
        "win32": "AppData/Roaming/Code/User/mcp.json",
    },
    "windsurf": dict.fromkeys(PLATFORMS, ".codeium/windsurf/mcp_config.json"),
    "codex": dict.fromkeys(PLATFORMS, ".codex/config.toml"),
    "gemini-cli": dict.fromkeys(PLATFORMS, ".gemini/settings.json"),
}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_each_client_has_its_file_on_each_platform(tmp_path: Path, platform: str) -> None:
    on = machine(tmp_path, platform)
    found = {name: config_of(name, on).relative_to(tmp_path).as_posix() for name in CLIENTS}
    assert found == {name: files[platform] for name, files in EXPECTED.items()}


@pytest.mark.parametrize(
    ("client", "platform", "variable", "below"),
    [
        ("claude-desktop", "linux", "XDG_CONFIG_HOME", "Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", "APPDATA", "Claude/claude_desktop_config.json"),
        ("claude-code", "linux", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("claude-code", "win32", "CLAUDE_CONFIG_DIR", ".claude.json"),
        ("vscode", "linux", "XDG_CONFIG_HOME", "Code/User/mcp.json"),
        ("vscode", "win32", "APPDATA", "Code/User/mcp.json"),
        ("vscode", "darwin", "VSCODE_PORTABLE", "user-data/User/mcp.json"),
        ("codex", "darwin", "CODEX_HOME", "config.toml"),
        ("gemini-cli", "linux", "GEMINI_CLI_HOME", ".gemini/settings.json"),
    ],
)
def test_a_variable_moves_the_folder(tmp_path: Path, client: str, platform: str, variable: str, below: str) -> None:
    moved = tmp_path / "else where"
    assert config_of(client, machine(tmp_path, platform, **{variable: str(moved)})) == moved / below
    assert variable in VARIABLES


def test_variables_of_one_platform_mean_nothing_on_another(tmp_path: Path) -> None:
    other = str(tmp_path / "other")
    assert config_of("vscode", machine(tmp_path, "darwin", XDG_CONFIG_HOME=other, APPDATA=other)) == (
        tmp_path / EXPECTED["vscode"]["darwin"]
    )
    assert config_of("vscode", machine(tmp_path, "linux", XDG_CONFIG_HOME="relative")) == (
        tmp_path / EXPECTED["vscode"]["linux"]
    )


def test_from_its_windows_package_claude_desktop_reads_the_folder_of_the_package(tmp_path: Path) -> None:
    local = tmp_path / "AppData" / "Local"
    on = machine(tmp_path, "win32")
    write(config_of("claude-desktop", on), "{}")  # left behind by an older installer
    for name in ("Claude_abc", "Claude_xyz", "Other_abc"):
        (local / "Packages" / name).mkdir(parents=True)
    inside = Path("LocalCache/Roaming/Claude/claude_desktop_config.json")
    assert config_of("claude-desktop", on) == local / "Packages" / "Claude_abc" / inside
    write(local / "Packages" / "Claude_xyz" / inside, "{}")
    assert config_of("claude-desktop", on) == local / "Packages" / "Claude_xyz" / inside
    assert config_of("claude-desktop", machine(tmp_path, "win32", LOCALAPPDATA=str(local))).exists()


@pytest.mark.parametrize(("platform", "config"), [("linux", ".config"), ("win32", "AppData/Roaming")])
def test_windsurf_under_its_new_name_has_a_new_folder(tmp_path: Path, platform: str, config: str) -> None:
    on = machine(tmp_path, platform)
    new, old = tmp_path / config / "devin" / "mcp_config.json", tmp_path / ".codeium" / "windsurf" / "mcp_config.json"
    new.parent.mkdir(parents=True)
    assert config_of("windsurf", on) == new
    write(old, "{}")
    assert config_of("windsurf", on) == old
    write(new, "{}")
    assert config_of("windsurf", on) == new


def test_a_client_without_a_trace_is_told_from_one_that_has_run(tmp_path: Path) -> None:
    on = machine(tmp_path)
    assert [name for name, client in CLIENTS.items() if client.place(on).used] == []
    for folder in (".claude", ".cursor", ".config/Code", ".codex"):
        (tmp_path / folder).mkdir(parents=True)
    used = [name for name, client in CLIENTS.items() if client.place(on).used]
    assert used == ["claude-code", "cursor", "vscode", "codex"]

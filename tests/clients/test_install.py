"""Each client's file in each state it may be in: our entry comes in, and everything else stays to the byte."""

import json
import os
import stat
import tomllib
from pathlib import Path

import pytest

from middleout_mcp.clients import jsonc
from middleout_mcp.clients.install import look
from middleout_mcp.clients.places import CLIENTS
from middleout_mcp.errors import ClientFileError
from tests.clients.machines import ENTRY, PLATFORMS, config_of, install, machine, write
from tests.disks import remounted_read_only

ALL = list(CLIENTS)
JSON_CLIENTS = [name for name, client in CLIENTS.items() if client.form == "json"]


def servers(client: str, file: Path) -> dict:
    text = file.read_text(encoding="utf-8-sig")
    data = tomllib.loads(text) if CLIENTS[client].form == "toml" else jsonc.read(text)
    return data[CLIENTS[client].section]


def expected(client: str) -> dict:
    return {**CLIENTS[client].extra, **ENTRY}


def used_file(client: str, newline: str = "\n") -> str:
    """A file as users have it: comments, odd spacing, another server, settings of other kinds."""
    section = CLIENTS[client].section
    if CLIENTS[client].form == "toml":
        text = f'# mine\nmodel = "x"   # which\n\n[{section}.other]\ncommand = "npx" # a\n\n# tui\n[tui]\nx = 1\n'
    else:
        text = (
            f'// mine\n{{\n    "theme":"dark",  /* odd */\n    "{section}": {{\n'
            '        "other": {"command":"npx"} // a\n        // "off": {}\n    },\n    "last": [ 1,2 ]\n}\n'
        )
    return text.replace("\n", newline)


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("client", ALL)
def test_a_missing_file_is_made_with_its_folder(tmp_path: Path, client: str, platform: str) -> None:
    on = machine(tmp_path, platform)
    report = install(client, on)
    assert servers(client, report.file) == {"memory": expected(client)}
    assert (report.action, report.changed, report.backup, report.present) == ("connected", True, None, False)
    assert report.file == config_of(client, on)
    if CLIENTS[client].form == "json":
        json.loads(report.file.read_text())  # no comments, no trailing commas: any reader takes it


@pytest.mark.parametrize("client", ALL)
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_used_file_keeps_all_it_has_and_gets_its_bytes_back(
    tmp_path: Path, client: str, newline: str, mark: bytes
) -> None:
    on = machine(tmp_path)
    before = mark + used_file(client, newline).encode()
    file = write(config_of(client, on), before)
    report = install(client, on)
    after = file.read_bytes()
    assert servers(client, file)["memory"] == expected(client)
    assert after.startswith(mark)
    assert after.count(b"\n") == after.count(newline.encode())
    for line in before.splitlines():
        assert line.replace(b",", b"") in after.replace(b",", b"")
    assert report.present
    assert report.backup is not None
    assert report.backup.read_bytes() == before
    assert report.backup.name == f"{file.name}.bak-20261130-120000"
    report.backup.unlink()  # the bytes come back without it, too
    assert install(client, on, None).action == "removed"
    assert file.read_bytes() == before


@pytest.mark.parametrize("client", ALL)
@pytest.mark.parametrize("content", ["", "\n\n", "{}", "{ }\n", '{"SECTION": {}}', '{\n  "SECTION": {\n  }\n}'])
def test_an_empty_file_or_section_is_filled_and_gets_its_bytes_back(tmp_path: Path, client: str, content: str) -> None:
    on = machine(tmp_path)
    if CLIENTS[client].form == "toml":
        content = content.strip("{ }") if "{" not in content.strip() else "[mcp_servers]\n"
    before = content.replace("SECTION", CLIENTS[client].section)
    file = write(config_of(client, on), before)
    assert install(client, on).changed
    assert servers(client, file) == {"memory": expected(client)}
    install(client, on, None)
    assert file.read_text() == before


@pytest.mark.parametrize("client", ALL)
def test_a_second_time_nothing_is_changed_and_no_copy_made(tmp_path: Path, client: str) -> None:
    on = machine(tmp_path)
    file = write(config_of(client, on), used_file(client))
    install(client, on)
    before = {path: path.read_bytes() for path in file.parent.iterdir() if path.is_file()}
    report = install(client, on)
    assert (report.action, report.changed, report.backup, report.diff) == ("already connected", False, None, "")
    assert {path: path.read_bytes() for path in file.parent.iterdir() if path.is_file()} == before
    assert look(CLIENTS[client], on, ENTRY, None).connected == "yes"


@pytest.mark.parametrize("client", ALL)
def test_a_dry_run_shows_the_difference_and_changes_nothing(tmp_path: Path, client: str) -> None:
    on = machine(tmp_path)
    file = config_of(client, on)
    assert f"+++ {file}" in install(client, on, dry_run=True).diff
    assert list(tmp_path.iterdir()) == []
    before = write(file, used_file(client)).read_bytes()
    report = install(client, on, dry_run=True)
    added = [line for line in report.diff.splitlines() if line.startswith("+")]
    assert any("middleout-mcp" in line for line in added)
    assert report.changed
    assert (file.read_bytes(), [path.name for path in file.parent.glob(f"{file.name}*")]) == (before, [file.name])


@pytest.mark.parametrize("client", ALL)
def test_a_malformed_file_is_refused_with_line_column_and_mend(tmp_path: Path, client: str) -> None:
    on = machine(tmp_path)
    broken = "x = 1\ny = = 2\n" if CLIENTS[client].form == "toml" else '{\n  "a": 1\n  "b": 2\n}\n'
    file = write(config_of(client, on), broken)
    for entry in (ENTRY, None):
        with pytest.raises(ClientFileError, match=r"line 2, column \d") as refused:
            install(client, on, entry)
        assert str(file) in str(refused.value)
        assert "nothing changed" in str(refused.value)
    assert file.read_text() == broken
    assert [path for path in file.parent.iterdir() if path.is_file()] == [file]
    state = look(CLIENTS[client], on, ENTRY, None)
    assert (state.connected, "line 2" in state.complaint) == ("unreadable", True)


@pytest.mark.parametrize("client", JSON_CLIENTS)
def test_a_section_that_is_no_object_is_refused(tmp_path: Path, client: str) -> None:
    on = machine(tmp_path)
    file = write(config_of(client, on), json.dumps({CLIENTS[client].section: []}))
    with pytest.raises(ClientFileError, match="must hold an object"):
        install(client, on)
    assert CLIENTS[client].section in file.read_text()


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    on = machine(tmp_path)
    file = write(config_of("cursor", on), "{}".encode("utf-16"))
    with pytest.raises(ClientFileError, match="save it as UTF-8"):
        install("cursor", on)
    assert file.read_bytes() == "{}".encode("utf-16")


@pytest.mark.parametrize("client", ALL)
def test_a_read_only_file_is_left_alone_even_by_root(tmp_path: Path, client: str) -> None:
    on = machine(tmp_path)
    file = write(config_of(client, on), used_file(client))
    file.chmod(0o444)
    with pytest.raises(ClientFileError, match="read-only; make it writable"):
        install(client, on)
    assert file.read_text() == used_file(client)
    assert [path.name for path in file.parent.glob(f"{file.name}*")] == [file.name]
    assert install(client, on, dry_run=True).diff


@pytest.mark.parametrize("there", [True, False])
def test_a_folder_that_may_only_be_read_is_one_sentence(tmp_path: Path, there: bool) -> None:
    home = tmp_path / "disk"
    on = machine(home)
    with remounted_read_only(home, {config_of("cursor", on): used_file("cursor")} if there else {}):
        with pytest.raises(ClientFileError) as refused:
            install("cursor", on)
        assert "read-only file system" in str(refused.value)
        assert "\n" not in str(refused.value)
        assert not there or config_of("cursor", on).read_text() == used_file("cursor")


@pytest.mark.skipif(os.name == "nt", reason="links need rights on Windows")
@pytest.mark.parametrize("there", [True, False])
def test_a_link_is_followed_and_stays(tmp_path: Path, there: bool) -> None:
    on = machine(tmp_path / "home")
    link, real = config_of("vscode", on), tmp_path / "dotfiles" / "mcp.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(real)
    if there:
        write(real, used_file("vscode"))
    report = install("vscode", on)
    assert link.is_symlink()
    assert servers("vscode", real)["memory"] == expected("vscode")
    if there:
        assert report.backup is not None
        assert report.backup.parent == real.parent
        install("vscode", on, None)
        assert real.read_text() == used_file("vscode")
    assert link.is_symlink()


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
@pytest.mark.parametrize("mode", [0o600, 0o644, 0o660])
def test_permissions_stay_and_the_copy_has_them_too(tmp_path: Path, mode: int) -> None:
    on = machine(tmp_path)
    file = write(config_of("codex", on), used_file("codex"))
    file.chmod(mode)
    report = install("codex", on)
    assert report.backup is not None
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file, report.backup)] == [mode, mode]
    assert not [path for path in file.parent.iterdir() if path not in (file, report.backup)]


def test_copies_of_one_second_do_not_overwrite_each_other(tmp_path: Path) -> None:
    on = machine(tmp_path)
    file = write(config_of("cursor", on), used_file("cursor"))
    texts = [file.read_text()]
    for command in ("/a/middleout-mcp", "/b/middleout-mcp", "/c/middleout-mcp"):
        install("cursor", on, {"command": command})
        texts.append(file.read_text())
    assert sorted(path.read_text() for path in file.parent.glob("*.bak-*")) == sorted(texts[:-1])
    install("cursor", on, None)
    assert file.read_text() == texts[0]

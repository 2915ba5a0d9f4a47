"""Replacing a file that is not ours: never over another program's change, and nothing left behind where it fails."""

import subprocess
from pathlib import Path

import pytest

from middleout_mcp.clients import files
from middleout_mcp.errors import ClientFileError
from tests.clients.machines import NOW, write


def test_what_another_program_wrote_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = write(tmp_path / "mcp.json", "{}")
    content = files.load(file)
    file.write_text('{"new": 1}')
    with pytest.raises(ClientFileError, match="run the command again"):
        files.replace(file, content, b"ours", NOW)
    assert [path.name for path in tmp_path.iterdir()] == ["mcp.json"]
    assert file.read_text() == '{"new": 1}'


def test_a_file_that_came_into_being_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    content = files.load(file)
    file.write_text("{}")
    with pytest.raises(ClientFileError, match="run the command again"):
        files.replace(file, content, b"ours", NOW)
    assert file.read_text() == "{}"


def test_a_file_that_cannot_be_replaced_is_left_without_remains(tmp_path: Path) -> None:
    file = write(tmp_path / "mcp.json", "{}")
    if subprocess.run(["mount", "--bind", str(file), str(file)], capture_output=True).returncode:
        pytest.skip("this user may not mount a file")
    try:
        with pytest.raises(ClientFileError, match="cannot be written"):
            files.replace(file, files.load(file), b"ours", NOW)
        assert [path.name for path in tmp_path.iterdir()] == ["mcp.json"]
        assert file.read_text() == "{}"
    finally:
        subprocess.run(["umount", "-l", str(file)], check=True)


def test_a_folder_in_place_of_the_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ClientFileError, match="cannot be read"):
        files.load(tmp_path)
    (tmp_path / "folder").write_text("a file")
    with pytest.raises(ClientFileError, match="folder"):
        files.replace(tmp_path / "folder" / "mcp.json", files.Content(None, ""), b"ours", NOW)

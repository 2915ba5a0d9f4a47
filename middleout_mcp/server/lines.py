"""What a line of input is answered with when it is no message that the SDK takes; the SDK itself answers nothing then.

A client waits for an answer by its id, so the id of a request is read even where the rest of it cannot be: too deep,
too many digits, not of the protocol. No answer repeats anything of the line but that id.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from mcp_types import INVALID_REQUEST, PARSE_ERROR, JSONRPCNotification, jsonrpc_message_adapter
from pydantic import ValidationError

_BAD_JSON = "this line is not valid JSON; send each JSON-RPC message whole, on one line of its own"
_TOO_DEEP = "this message is nested too deeply to be read; flatten its data to at most 100 levels"
_TOO_LONG = "a number in this message has too many digits to be read; send it as text"
_BATCH = "batches are not supported; send each message on a line of its own"
_NO_MESSAGE = 'this is no JSON-RPC message; a request has "jsonrpc": "2.0", an id, a method and an object of params'
_BAD_ID = "the id of a request must be text or a whole number"

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_DIGITS_READ = 100


def refusals(line: str) -> list[bytes]:
    """The error answers to a line that is no message, without line ends; none for a message or a blank line."""
    if not line.strip():
        return []
    try:
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as error:
        return _answers(line, *_fault(line, error))
    if isinstance(message, JSONRPCNotification) and '"id"' in line and "id" in (_outline(line) or ()):
        return _answers(line, INVALID_REQUEST, _BAD_ID)
    return []


def _fault(line: str, error: ValidationError) -> tuple[int, str]:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] != "json_invalid":
        return INVALID_REQUEST, _BATCH if line.lstrip().startswith("[") else _NO_MESSAGE
    what = first["msg"]
    if "recursion limit" in what:
        return INVALID_REQUEST, _TOO_DEEP
    if "number out of range" in what:
        return INVALID_REQUEST, _TOO_LONG
    return PARSE_ERROR, _BAD_JSON


def _answers(line: str, code: int, sentence: str) -> list[bytes]:
    """One answer to each request in the line whose id can be read, else one without an id."""
    error = {"code": code, "message": sentence}
    ids: list[int | str | None] = list(_request_ids(line)) if code == INVALID_REQUEST else []
    return [json.dumps({"jsonrpc": "2.0", "id": each, "error": error}).encode() for each in ids or [None]]


def _request_ids(line: str) -> Iterator[int | str]:
    """The ids of the requests in a line: an answer to what is no request would be taken for that to a request."""
    outline = _outline(line)
    for message in outline if isinstance(outline, list) else [outline]:
        if (
            isinstance(message, dict)
            and isinstance(message.get("method"), str)
            and type(message.get("id")) in (int, str)
        ):
            yield message["id"]


def _outline(line: str) -> Any:
    """The message in the line, or the list of them, with null for whatever is nested in it; however deep that is."""
    kept = 2 if line.lstrip().startswith("[") else 1
    pieces: list[str] = []
    depth = start = 0
    for token in _TOKEN.finditer(line):
        if token[0] in "[{":
            depth += 1
            if depth == kept + 1:
                pieces += (line[start : token.start()], "null")
        elif token[0] in "]}":
            if depth == kept + 1:
                start = token.end()
            depth -= 1
    if depth <= kept:
        pieces.append(line[start:])
    try:
        return json.loads("".join(pieces), parse_int=_whole_number)
    except ValueError:
        return None


def _whole_number(digits: str) -> int | None:
    return int(digits) if len(digits) <= _DIGITS_READ else None

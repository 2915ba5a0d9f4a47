"""Reading the arguments of `remember`: everything is checked, cleaned and screened here, before anything is stored."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from anyio.to_thread import run_sync
from pydantic import BaseModel

from middleout_mcp.conversation.capture import TurnDraft
from middleout_mcp.errors import InvalidInput
from middleout_mcp.memory.contract import MemoryIn, RememberIn, TurnIn
from middleout_mcp.memory.parts import Parts
from middleout_mcp.policy import DEFAULTS
from middleout_mcp.records import Kind, Privacy, Source, TaskState
from middleout_mcp.safety.hygiene import clean_line, clean_text
from middleout_mcp.safety.nested import screen_all, screen_json
from middleout_mcp.safety.screening import screen, screen_field
from middleout_mcp.times import parse_expiry, parse_time

_LONG_CALL = 50_000  # characters; screening them takes about 40 ms
_ENTRY = 10  # characters that take as long as one entry of a list
_AGENT_READ = 2_000
_AGENT_KEPT = 100
_NOT_STORED = "{} holds a secret or <private> text, which is never stored; leave that out"
UNKNOWN_AGENT = "unknown"
_SETTABLE_KINDS = frozenset(Kind) - {Kind.SUMMARY}


@dataclass(frozen=True, slots=True)
class MemoryDraft:
    """One given memory, read: `fields` holds record fields by name, only those that were given."""

    id: str | None
    ref: str | None
    fields: dict[str, Any]
    turns: tuple[int, ...] | None
    expires_with_session: bool = False
    redacted: tuple[str, ...] = ()
    refused: str | None = None
    """Why this memory is rejected by policy; the others of the call are stored all the same."""


@dataclass(frozen=True, slots=True)
class Intake:
    """A whole `remember` call, read."""

    memories: tuple[MemoryDraft, ...]
    turns: tuple[TurnDraft, ...]
    thread: str | None
    line: str | None
    redacted: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """The kinds of what was removed from a turn, by its index."""
    line_redacted: tuple[str, ...] = ()

    @property
    def removed(self) -> tuple[str, ...]:
        """Every kind that was removed from the messages and the line."""
        kinds = [kind for found in self.redacted.values() for kind in found]
        return tuple(dict.fromkeys((*kinds, *self.line_redacted)))


async def read(parts: Parts, request: RememberIn, now: datetime) -> Intake:
    """Check and clean a call, a long one in a thread, so that others are answered meanwhile.

    Raises InvalidInput with the place of the fault; nothing was stored then.
    """
    if not _is_long(request):
        return _read(parts, request, now)
    return await run_sync(_read, parts, request, now, abandon_on_cancel=True)


def _is_long(request: RememberIn) -> bool:
    """Whether all texts, lists and data of the call together take long to read."""
    left = _LONG_CALL
    waiting: list[Any] = [request]
    while waiting and left > 0:
        value = waiting.pop()
        left -= len(value) if isinstance(value, str) else _ENTRY
        if isinstance(value, BaseModel):
            waiting += vars(value).values()
        elif isinstance(value, dict):
            left -= _ENTRY * len(value)
            waiting += (*value, *value.values()) if left > 0 else ()
        elif isinstance(value, list):
            left -= _ENTRY * len(value)
            waiting += value if left > 0 else ()
    return left <= 0


def _read(parts: Parts, request: RememberIn, now: datetime) -> Intake:
    redacted: dict[int, tuple[str, ...]] = {}
    turns = []
    for index, message in enumerate(request.messages or ()):
        turn, found = _turn(parts, message, now, f"messages[{index}]")
        turns.append(turn)
        if found:
            redacted[index] = tuple(dict.fromkeys(found))
    memories = tuple(
        _memory(parts, MemoryIn(text=given) if isinstance(given, str) else given, now, f"memories[{index}]", len(turns))
        for index, given in enumerate(request.memories or ())
    )
    line = None
    line_redacted: tuple[str, ...] = ()
    if request.episode is not None:
        screened = screen(clean_line(request.episode, what="episode", limit=2_000), parts.find_secrets)
        line, line_redacted = screened.text, tuple(screened.kinds)
    return Intake(
        memories,
        tuple(turns),
        None if request.thread is None else name(parts, request.thread, "thread"),
        line,
        redacted,
        line_redacted,
    )


def name(parts: Parts, text: str, what: str, *, faithful: bool = False) -> str:
    """A one-line name (thread, session, tag, reference), cleaned. Raises InvalidInput where it holds a secret.

    `faithful` keeps compatibility characters, for a caller's own references.
    """
    line = clean_line(text, what=what, faithful=faithful)
    if screen(line, parts.find_secrets).text != line:
        raise InvalidInput(_NOT_STORED.format(what))
    return line


def agent_name(parts: Parts, given: str) -> str:
    """Who calls, as it is stored: clients call themselves whatever they like, so nothing is refused, only cleaned."""
    try:
        line = clean_line(given[:_AGENT_READ], what="agent", limit=100 * _AGENT_READ)
        line = screen(line, parts.find_secrets).text
    except InvalidInput:
        return UNKNOWN_AGENT
    return line[:_AGENT_KEPT].strip() or UNKNOWN_AGENT


async def screened_text(parts: Parts, text: str, what: str) -> str:
    """A text of several lines as it may be stored: checked, cleaned, secrets redacted. Raises InvalidInput."""

    def work() -> str:
        clean = clean_text(text, max_bytes=parts.settings.max_text_bytes, what=what)
        return screen(clean, parts.find_secrets).text

    return await run_sync(work)


def scope_name(parts: Parts, text: str, what: str) -> str:
    """A scope; "this project" is the project of the settings, where one is set (DESIGN §9)."""
    line = name(parts, text, what)
    return parts.settings.project or line if line.casefold() == "this project" else line


def _turn(parts: Parts, message: TurnIn, now: datetime, what: str) -> tuple[TurnDraft, tuple[str, ...]]:
    screened = screen(
        clean_text(message.text, max_bytes=parts.settings.max_text_bytes, what=f"{what}.text"), parts.find_secrets
    )
    data, kinds = _data(parts, message.data, f"{what}.data")
    draft = TurnDraft(
        role=_role(parts, message.role, f"{what}.role"),
        text=screened.text,
        at=None if message.at is None else parse_time(message.at, now, parts.zone, what=f"{what}.at"),
        name=None if message.name is None else name(parts, message.name, f"{what}.name"),
        present=names(parts, message.present, f"{what}.present"),
        data=data,
    )
    return draft, (*screened.kinds, *kinds)


def _data(parts: Parts, given: Any, what: str) -> tuple[Any, tuple[str, ...]]:
    if given is None:
        return None, ()
    limit = parts.settings.max_text_bytes
    try:
        size = len(json.dumps(given, ensure_ascii=False).encode())
    except RecursionError:  # what is nested so deep is refused below
        size = 0
    if size > limit:
        raise InvalidInput(f"{what} has {size:,} bytes as JSON, over the limit of {limit:,}; keep the rest elsewhere")
    return screen_json(given, parts.find_secrets, what)


def _role(parts: Parts, given: str, what: str) -> str:
    if not given.strip():
        raise InvalidInput(f"{what} is empty; say who spoke, such as user or assistant")
    return name(parts, given, what)


def names(parts: Parts, values: Sequence[str] | None, what: str) -> tuple[str, ...] | None:
    """A list of one-line names, each once; an error names the place of the fault. None where no list was given."""
    if values is None:
        return None
    lines = [clean_line(value, what=f"{what}[{index}]") for index, value in enumerate(values)]
    found = screen_all(lines, parts.find_secrets)
    for index, line in enumerate(lines):
        if line in found:
            raise InvalidInput(_NOT_STORED.format(f"{what}[{index}]"))
    return tuple(dict.fromkeys(lines))


def _memory(parts: Parts, given: MemoryIn, now: datetime, what: str, messages: int) -> MemoryDraft:
    if given.text is None and given.id is None:
        raise InvalidInput(f"{what} has no text; only a change to an existing memory, named by id, may leave it out")
    if given.id is not None and given.ref is not None:
        raise InvalidInput(f"{what} has both id and ref; one of them says which memory is meant")
    fields: dict[str, Any] = {}
    redacted: list[str] = []
    if given.text is not None:
        text = clean_text(given.text, max_bytes=parts.settings.max_text_bytes, what=f"{what}.text")
        screened = screen(text, parts.find_secrets)
        fields["text"] = screened.text
        redacted += screened.kinds
    redacted += _classify(parts, given, fields, what)
    session = _times(parts, given, now, fields, what)
    for number in ("confidence", "importance", "emotional_weight", "pinned"):
        if getattr(given, number) is not None:
            fields[number] = getattr(given, number)
    if redacted:
        fields["redacted"] = True
    return MemoryDraft(
        id=given.id,
        ref=None if given.ref is None else name(parts, given.ref, f"{what}.ref", faithful=True),
        fields=fields,
        turns=_turn_indexes(given.turns, messages, what),
        expires_with_session=session,
        redacted=tuple(dict.fromkeys(redacted)),
        refused=_refusal(parts, given, fields, redacted),
    )


def _classify(parts: Parts, given: MemoryIn, fields: dict[str, Any], what: str) -> list[str]:
    """Fill kind, source, key, value, scope, tags, holders, privacy and task state; returns kinds of secrets found."""
    redacted: list[str] = []
    if given.kind is not None or given.state is not None or given.due is not None:
        fields.update(_kind(parts, given, what))
    if given.source is not None:
        fields["source"] = Source(given.source)
        fields["trust"] = DEFAULTS[Source(given.source)].trust
    if given.key is not None:
        fields["key"] = key_name(name(parts, given.key, f"{what}.key"))
    if given.value is not None:
        value = clean_line(given.value, what=f"{what}.value", limit=2_000, faithful=True)
        screened = screen_field(given.key or "", value, parts.find_secrets)
        fields["value"] = screened.text
        redacted += screened.kinds
    if given.scope is not None:
        fields["scope"] = scope_name(parts, given.scope, f"{what}.scope")
    if given.tags is not None:
        fields["tags"] = names(parts, given.tags, f"{what}.tags")
    if given.known_by is not None:
        fields["known_by"] = names(parts, given.known_by, f"{what}.known_by")
    if given.privacy is not None and given.privacy != "secret":
        fields["privacy"] = Privacy(given.privacy)
    if given.state is not None:
        fields["state"] = TaskState(given.state)
    return redacted


def key_name(text: str) -> str:
    """A key in its one spelling: `Example Language` and `example_language` are the same."""
    return "_".join(text.casefold().replace("-", " ").split())


def _kind(parts: Parts, given: MemoryIn, what: str) -> dict[str, Any]:
    is_task = given.state is not None or given.due is not None
    word = "" if given.kind is None else name(parts, given.kind, f"{what}.kind").casefold()
    if word == Kind.SUMMARY:
        raise InvalidInput(f"{what}.kind: summaries are made by compress; store this as fact, event or decision")
    if is_task and word not in ("", Kind.TASK):
        raise InvalidInput(f"{what}: state and due belong to kind task, not to {word}")
    if is_task or word in _SETTABLE_KINDS:
        return {"kind": Kind.TASK if is_task else Kind(word)}
    return {"kind": Kind.FACT, "key": key_name(word)}


def _times(parts: Parts, given: MemoryIn, now: datetime, fields: dict[str, Any], what: str) -> bool:
    """Fill the time fields; True where the memory expires with the session."""
    if given.at is not None:
        fields["at"] = parse_time(given.at, now, parts.zone, what=f"{what}.at")
    if given.due is not None:
        fields["due"] = parse_time(given.due, now, parts.zone, what=f"{what}.due", prefer="future")
    if given.expires is None:
        return False
    expires = parse_expiry(given.expires, now, parts.zone, what=f"{what}.expires")
    if expires == "session":
        return True
    fields["expires_at"] = expires
    return False


def _turn_indexes(turns: list[int] | None, messages: int, what: str) -> tuple[int, ...] | None:
    if turns is None:
        return None
    wrong = [index for index in turns if not 0 <= index < messages]
    if wrong:
        expected = f"0 to {messages - 1}" if messages else "no messages were given"
        raise InvalidInput(f"{what}.turns names message {wrong[0]}, which is not in messages ({expected})")
    return tuple(dict.fromkeys(turns))


def _refusal(parts: Parts, given: MemoryIn, fields: dict[str, Any], redacted: list[str]) -> str | None:
    if given.privacy == "secret":
        return "secrets are never stored; keep it in a password manager and remember only where it is"
    if redacted and parts.settings.secrets == "refuse":
        return f"it holds a secret ({', '.join(dict.fromkeys(redacted))}); leave the secret out and try again"
    if "text" in fields and not fields["text"].replace("[private]", "").strip():
        return "nothing is left of it outside <private>"
    return None

"""The commands that only look: `recall` (also `search`), `list`, `show` and `stats`."""

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

import click

from middleout_mcp.cli.call import Call, memory_command, request
from middleout_mcp.cli.page import Page, counted, short
from middleout_mcp.cli.report import Failed
from middleout_mcp.memory.contract import Include, Item, OpenIn, OpenOut, RecallIn, RecallOut, Withheld
from middleout_mcp.memory.owner_contract import ListIn, ListOut
from middleout_mcp.records import Caller, Kind, Status

if TYPE_CHECKING:
    from middleout_mcp.app import App

_MOST_TOKENS = 10_000
_INCLUDED = [word for word in get_args(Include) if word != "discarded"]  # that one belongs to viewpoints
_RECORD = (
    *("at", "created_at", "updated_at", "valid_from", "valid_to", "source", "trust", "confidence", "scope", "thread"),
    *("episode_id", "rung", "band", "represents"),
)
_NAMES = {
    "at": "happened",
    "created_at": "written",
    "updated_at": "changed",
    "episode_id": "episode",
    "copies": "times told",
    "last_used_at": "last used",
}
_UNSAID = {"privacy": "normal", "emotional_weight": 0.0, "use": 0.0, "copies": 1}
"""Values that say nothing about a memory."""
_NARROWING = (
    click.option("--kind", "kinds", metavar="KIND", multiple=True, help=f"Only this kind: {', '.join(Kind)}."),
    click.option("--tag", "tags", metavar="TAG", multiple=True, help="Only with this tag."),
    click.option("--scope", metavar="NAME", help="Only what applies to this project, or to all."),
    click.option("--since", metavar="TIME", help="Only what happened since then."),
    click.option("--until", metavar="TIME", help="Only what happened until then."),
    click.option("--thread", metavar="ID", help="Only from this conversation."),
)


def _narrowing(command: Any) -> Any:
    for option in reversed(_NARROWING):
        command = option(command)
    return command


@memory_command("recall", short_help="Find memories, or what matters now.")
@click.argument("query", nargs=-1)
@click.option("--limit", type=int, help="At most so many memories; 8 unless given.")
@_narrowing
@click.option("--as-of", metavar="TIME", help="What held at that time.")
@click.option("--session", metavar="NAME", help="Only from this session.")
@click.option("--purpose", metavar="WORDS", help="What sensitive memories are needed for.")
@click.option(
    "--include",
    type=click.Choice(_INCLUDED),
    multiple=True,
    help="Also what is usually left out.",
)
def recall(call: Call, query: tuple[str, ...], **given: Any) -> None:
    """Find memories as a model would. Without QUERY: what matters now."""
    asked = request(RecallIn, "recall", query=" ".join(query) or None, max_tokens=_MOST_TOKENS, **given)

    async def work(app: "App", caller: Caller) -> RecallOut:
        return await app.recall(caller, asked)

    result = call.perform(work).model_copy(update={"cursor": None})  # no later command could use it
    call.give(result, lambda page: _show_recalled(page, result))


search = copy.copy(recall)
search.name = "search"
search.short_help = "The same as recall."


def _show_recalled(page: Page, result: RecallOut) -> None:
    _table(page, result.items)
    if not result.items:
        page.line("Nothing relevant is remembered. `middleout-mcp list` shows what is.")
    if result.below_floor:
        words = counted(result.below_floor, "memory", "memories")
        page.line(f"{words} below the floor of relevance; --include below_floor shows {_them(result.below_floor)}.")
    _withheld(page, result.withheld)
    if result.truncated:
        page.line("There is more than fits one answer: narrow the search.")
    if result.notice:
        page.line(result.notice)


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _withheld(page: Page, withheld: list[Withheld] | None) -> None:
    for each in withheld or ():
        page.line(f"{counted(each.count, 'memory')} withheld, {each.reason}.")


def _table(page: Page, items: list[Item]) -> None:
    columns = ("ID", "WHEN", "KIND", "SCORE", "NOTES", "TEXT")
    page.table(columns, [_row(page, each) for each in items])


def _row(page: Page, item: Item) -> tuple[str, ...]:
    score = "" if item.score is None else f"{item.score:.2f}"
    return item.id, page.time(item.at)[:10], item.kind, score, _notes(page, item), short(item.text)


def _notes(page: Page, item: Item) -> str:
    """Marks and status, in few words; times among them in the reader's zone."""
    notes = list(item.marks or ())
    if item.status not in ("live", *notes):
        notes.insert(0, item.status)
    if item.represents:
        notes.append(f"stands for {item.represents}")
    return _local(page, notes)


def _local(page: Page, notes: list[str]) -> str:
    return ", ".join(" ".join(page.value(word) for word in note.split()) for note in notes if note)


@memory_command("list")
@_narrowing
@click.option(
    "--status",
    "statuses",
    type=click.Choice([*(status.value for status in Status), "all"]),
    multiple=True,
    help="Only of this status; live unless given.",
)
@click.option("--pinned", is_flag=True, default=None, help="Only pinned ones.")
@click.option("--limit", type=int, help="At most so many; 20 unless given.")
@click.option("--offset", type=int, help="Leave out so many of the newest.")
def list_(call: Call, statuses: tuple[str, ...], **given: Any) -> None:
    """List memories, newest first."""
    wanted = tuple(Status) if "all" in statuses else statuses
    asked = request(ListIn, "list", statuses=wanted, **given)

    async def work(app: "App", caller: Caller) -> ListOut:
        return await app.list_memories(caller, asked)

    result = call.perform(work)
    call.give(result, lambda page: _show_list(page, asked, result, call.settings().namespace))


def _show_list(page: Page, asked: ListIn, result: ListOut, namespace: str) -> None:
    _table(page, result.items)
    _withheld(page, result.withheld)
    if result.more:
        page.line(f"There are more: --offset {asked.offset + asked.limit} shows the next, --limit shows more at once.")
    if result.namespaces is not None:
        _show_nothing(page, result.namespaces, namespace)


def _show_nothing(page: Page, namespaces: Mapping[str, int], namespace: str) -> None:
    others = {name: count for name, count in namespaces.items() if count and name != namespace}
    if namespaces.get(namespace):
        page.line("No memory meets these conditions; leave some out, or add --status all.")
        return
    page.line(f"Nothing is remembered in the namespace {namespace}.")
    for name, count in others.items():
        page.line(f"{name} holds {counted(count, 'memory')}: add --namespace {name}")


@memory_command("show", short_help="Show everything about an id.")
@click.argument("id")
def show(call: Call, id: str) -> None:  # noqa: A002 - the argument's name is what help shows
    """Show everything about an ID: a memory (m_), episode (e_), gap (g_), operation (op_) or run (run_)."""
    if id == "stats":
        raise Failed("statistics have a command of their own: middleout-mcp stats")
    first = request(OpenIn, "show", id=id, max_tokens=_MOST_TOKENS)

    async def work(app: "App", caller: Caller) -> OpenOut:
        return await _whole(app, caller, first)

    result = call.perform(work)
    call.give(result, lambda page: _show_opened(page, result))


async def _whole(app: "App", caller: Caller, asked: OpenIn) -> OpenOut:
    """All pages of a pointer as one."""
    whole = await app.open_episode(caller, asked)
    while whole.cursor is not None:
        following = await app.open_episode(caller, asked.model_copy(update={"cursor": whole.cursor}))
        whole = _joined(whole, following)
    return whole


def _joined(before: OpenOut, after: OpenOut) -> OpenOut:
    turns, more = list(before.turns or ()), list(after.turns or ())
    if turns and more and turns[-1].seq == more[0].seq:  # one message over two pages
        first = more.pop(0)
        turns[-1] = first.model_copy(update={"text": turns[-1].text + first.text})
    return before.model_copy(
        update={
            "text": f"{before.text or ''}{after.text or ''}" if before.type in ("memory", "summary") else before.text,
            "turns": turns + more or None,
            "memories": [*(before.memories or ()), *(after.memories or ())] or None,
            "buffer": [*(before.buffer or ()), *(after.buffer or ())] or None,
            "details": {**(after.details or {}), **(before.details or {})} or None,
            "truncated": after.truncated,
            "cursor": after.cursor,
        }
    )


def _show_opened(page: Page, opened: OpenOut) -> None:
    if opened.type in ("memory", "summary"):
        _show_memory(page, opened)
        return
    details = dict(opened.details or {})
    page.line(f"{opened.id}  {opened.type}", style="bold")
    if opened.line:
        page.line(opened.line, indent=2)
    told = {"id", "memories"} if opened.type == "operation" else {"id"}  # the latter is among the counts
    page.fields({name: value for name, value in details.items() if name not in told})
    for turn in opened.turns or ():
        page.line()
        page.line(f"{turn.seq}  {turn.name or turn.role}, {page.time(turn.at)}", style="bold")
        page.line(turn.text, indent=2)
    rows = [(line.id, line.date, f"{line.tokens:,}", line.line) for line in opened.buffer or ()]
    page.table(("ID", "WHEN", "TOKENS", "LINE"), rows, title="Stretches")
    if opened.memories:
        page.heading("Memories")
        _table(page, opened.memories)
    _ways_on(page, opened, details)


def _ways_on(page: Page, opened: OpenOut, details: Mapping[str, Any]) -> None:
    if opened.type == "operation" and details.get("undoable"):
        page.heading(f"To undo it: middleout-mcp undo {opened.id}")
    if opened.type == "run":
        page.heading(f"Its clusters: middleout-mcp compress --dry-run --run-id {opened.id}")


def _show_memory(page: Page, opened: OpenOut) -> None:
    details = dict(opened.details or {})
    record, operations, versions = (details.pop(name, ()) for name in ("record", "operations", "versions"))
    record = dict(record or {})
    marks = [mark for mark in record.get("marks", ()) if mark != record.get("status")]
    notes = [record.get("kind", opened.type), record.get("status", ""), *marks]
    page.line(f"{opened.id}  {_local(page, notes)}", style="bold")
    page.line(opened.text or "", indent=2)
    page.line()
    if record.get("updated_at") == record.get("created_at"):
        record.pop("updated_at", None)
    values = {name: record[name] for name in _RECORD if record.get(name)} | details
    page.fields({_NAMES.get(name, name): value for name, value in values.items() if _UNSAID.get(name) != value})
    if opened.memories:
        page.heading("Made from")
        _table(page, opened.memories)
    earlier = [(str(old["version"]), page.time(old["updated_at"]), old["text"]) for old in versions]
    page.table(("VERSION", "WRITTEN", "TEXT"), earlier, title="Earlier versions")
    history = [
        (each["id"], page.time(each["at"]), each["kind"], each["agent"], undo_state(each), each.get("reason", ""))
        for each in operations
    ]
    page.table(("OPERATION", "WHEN", "WHAT", "WHO", "UNDO", "WHY"), history, title="History")


def undo_state(operation: Mapping[str, Any]) -> str:
    """Whether an operation can be undone, or was, in a word or two."""
    if operation.get("undone_by"):
        return f"undone by {operation['undone_by']}"
    return "possible" if operation.get("undoable") else "not possible"


@memory_command("stats", short_help="Show what is remembered, in numbers.")
def stats(call: Call) -> None:
    """Show what is remembered, in numbers, and the latest operations."""

    async def work(app: "App", caller: Caller) -> OpenOut:
        return await app.open_episode(caller, OpenIn(id="stats"))

    details = dict(call.perform(work).details or {})
    details.pop("session", None)  # that of this very command
    call.give(details, lambda page: _show_stats(page, details))


def _show_stats(page: Page, details: Mapping[str, Any]) -> None:
    page.line(f"Namespace {details['namespace']}", style="bold")
    for name, values in details.items():
        if isinstance(values, Mapping):
            page.fields(values, title=name.replace("_", " ").capitalize())
    rows = [
        (each["id"], page.time(each["at"]), each["kind"], each["agent"], undo_state(each))
        for each in details.get("operations", ())
    ]
    page.table(("OPERATION", "WHEN", "WHAT", "WHO", "UNDO"), rows, title="Latest operations")

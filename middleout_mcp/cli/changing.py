"""The commands that change single memories: `edit`, `pin`, `unpin`, `forget` and `undo`."""

import sys
from typing import TYPE_CHECKING, Any, get_args

import click

from middleout_mcp.cli.call import Call, memory_command, request
from middleout_mcp.cli.page import Page, counted, short
from middleout_mcp.cli.report import Failed
from middleout_mcp.errors import MiddleoutError
from middleout_mcp.memory.contract import (
    ForgetAction,
    ForgetIn,
    ForgetOut,
    OpenIn,
    RememberIn,
    RememberOut,
    StateIn,
)
from middleout_mcp.records import Caller

if TYPE_CHECKING:
    from middleout_mcp.app import App

_FOR_GOOD = ("erase", "redact")
_LISTED = 5


@memory_command("edit", short_help="Correct a memory.")
@click.argument("id")
@click.option("--text", metavar="TEXT", help="The new text; `-` reads it from standard input.")
@click.option("--kind", metavar="KIND", help="What it is: event, fact, preference, decision, task or error.")
@click.option("--tag", "tags", metavar="TAG", multiple=True, help="Its tags, instead of those it has.")
@click.option("--key", metavar="NAME", help="What the value is of.")
@click.option("--value", metavar="TEXT", help="The value of the key.")
@click.option("--scope", metavar="NAME", help="The project it applies to.")
@click.option("--importance", type=float, help="0 to 1.")
@click.option("--privacy", type=click.Choice(["normal", "private", "sensitive"]), help="Who may see it.")
@click.option("--at", metavar="TIME", help="When it happened.")
@click.option("--state", type=click.Choice(get_args(StateIn)), help="How the task stands.")
@click.option("--due", metavar="TIME", help="When the task is due.")
@click.option("--expires", metavar="TIME", help="When it expires: a time, or a duration such as P30D.")
@click.option("--confirm", is_flag=True, help="It is right as it is: from now on it counts as verified.")
def edit(call: Call, id: str, text: str | None, confirm: bool, **given: Any) -> None:  # noqa: A002
    """Correct a memory. Without options, its text opens in your editor. Undo brings the earlier version back."""
    fields = {name: list(value) if isinstance(value, tuple) else value for name, value in given.items()}
    fields = {name: value for name, value in fields.items() if value not in (None, [])}
    if text is None and not fields and not confirm:
        text = _edited(call, id)
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    if text is not None:
        fields["text"] = text
    if fields.get("expires") == "session":
        raise Failed("expires: a command has no session; give a time, or a duration such as P30D")
    if text is not None or confirm or "key" in fields or "value" in fields:
        fields["source"] = "user"  # said explicitly, and by whom it may be said
    _change(call, [{"id": id, **fields}])


def _edited(call: Call, id: str) -> str:  # noqa: A002
    """The text of a memory after the person changed it in an editor."""
    if not sys.stdin.isatty():
        raise Failed("say what to change, such as --text; `middleout-mcp edit --help` lists the options")
    asked = request(OpenIn, "edit", id=id, max_tokens=10_000)

    async def work(app: "App", caller: Caller) -> str:
        opened = await app.open_episode(caller, asked)
        text = opened.text or ""
        while opened.cursor is not None:
            opened = await app.open_episode(caller, asked.model_copy(update={"cursor": opened.cursor}))
            text += opened.text or ""
        return text

    if not id.startswith("m_"):
        raise Failed(f"{id[:40]!r} is no memory; edit takes ids that begin with m_")
    before = call.perform(work)
    after = click.edit(before)
    if after is None or after.strip() == before.strip():
        raise Failed("the text was left as it is; nothing was changed")
    return after.strip()


def _change(call: Call, memories: list[dict[str, Any]]) -> None:
    asked = request(RememberIn, "edit", memories=memories)

    async def work(app: "App", caller: Caller) -> RememberOut:
        return await app.remember(caller, asked)

    result = call.perform(work)
    call.give(result, lambda page: _show_changed(page, result))
    if any("rejected" in each.actions for each in result.results):
        raise SystemExit(1)


def _show_changed(page: Page, result: RememberOut) -> None:
    for each in result.results:
        removed = f"; removed: {', '.join(each.redacted)}" if each.redacted else ""
        page.line(f"{each.id or 'refused'}: {each.reason}{removed}.")
    _undo_line(page, result.operation_id)


def _undo_line(page: Page, operation_id: str | None) -> None:
    if operation_id:
        page.line(f"To undo it: middleout-mcp undo {operation_id}")


@memory_command("pin", short_help="Pin memories.")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def pin(call: Call, ids: tuple[str, ...]) -> None:
    """Pin memories: they come up at the start of each conversation, and are never compressed."""
    _change(call, [{"id": each, "pinned": True} for each in dict.fromkeys(ids)])


@memory_command("unpin")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
def unpin(call: Call, ids: tuple[str, ...]) -> None:
    """Take the pin off memories."""
    _change(call, [{"id": each, "pinned": False} for each in dict.fromkeys(ids)])


@memory_command("forget", short_help="Forget, or look for what could be meant.")
@click.argument("ids", metavar="[ID]...", nargs=-1)
@click.option("--query", metavar="WORDS", help="Look for what could be meant; changes nothing.")
@click.option(
    "--action",
    type=click.Choice(get_args(ForgetAction)),
    default="archive",
    show_default=True,
    help="What to do; erase and redact are for good, all others can be undone.",
)
@click.option("--until", metavar="TIME", help="How long to suppress.")
@click.option("--span", "spans", metavar="WORDS", multiple=True, help="Words to redact; without, all known secrets.")
@click.option("--reason", metavar="WORDS", help="Why; kept in the log.")
@click.option("--yes", is_flag=True, help="Do not ask before something is erased or redacted.")
def forget(call: Call, ids: tuple[str, ...], yes: bool, **given: Any) -> None:
    """Hide, demote, expire, merge, archive, redact, erase or restore memories and episodes."""
    if not ids and given["query"] is None:
        raise click.UsageError("say which: give ids, or look for them with --query")
    action, until = given["action"], given["until"]
    if action == "suppress" and ids and (until is None or until.strip().casefold() == "step"):
        raise click.UsageError("suppress needs --until TIME here: a command has no session that could end")
    asked = request(ForgetIn, "forget", ids=ids, **given)
    if ids and action in _FOR_GOOD and not yes:
        _ask(call, action, asked.ids or [])
    result = _forget(call, asked)
    call.give(result, lambda page: _show_forgotten(page, result))


def _forget(call: Call, asked: ForgetIn) -> ForgetOut:
    async def work(app: "App", caller: Caller) -> ForgetOut:
        return await app.forget(caller, asked)

    return call.perform(work)


def _ask(call: Call, action: str, ids: list[str]) -> None:
    """Show what would go, and ask; where nobody can answer, refuse."""
    if not sys.stdin.isatty():
        raise Failed(f"{action} cannot be undone; add --yes to do it without being asked")

    async def work(app: "App", caller: Caller) -> list[str]:
        return [await _glimpse(app, caller, each) for each in ids]

    for line in call.perform(work):
        click.echo(line, err=True)
    if not click.confirm(f"{action.capitalize()} {'this' if len(ids) == 1 else 'these'} for good?", err=True):
        raise Failed("nothing was changed")


async def _glimpse(app: "App", caller: Caller, pointer: str) -> str:
    try:
        opened = await app.open_episode(caller, OpenIn(id=pointer))
    except MiddleoutError:  # what is wrong with it, the action itself will say
        return pointer
    return f"{pointer}  {short(opened.line or opened.text or '')}"


def _show_forgotten(page: Page, result: ForgetOut) -> None:
    if result.affected is None and result.candidates is not None:
        page.table(("ID", "KIND", "TEXT"), [(each.id, each.kind, each.text) for each in result.candidates])
        if result.candidates:
            page.line(f"Nothing was changed. Go on with: middleout-mcp forget ID --action {result.action}")
        else:
            page.line("Nothing was changed, and nothing was found that could be meant; `middleout-mcp list` shows all.")
        return
    affected = result.affected or []
    page.line(f"{result.action}: {_some(affected) if affected else 'nothing was different'}")
    if result.derived:
        page.line(f"also, because derived from {'it' if len(affected) == 1 else 'them'}: {_some(result.derived)}")
    if result.notice:
        page.line(result.notice)
    if result.action not in _FOR_GOOD:
        _undo_line(page, result.operation_id)


def _some(ids: list[str]) -> str:
    """The ids, of many only the first."""
    return ", ".join(ids[:_LISTED]) + (f" and {len(ids) - _LISTED} more" if len(ids) > _LISTED else "")


@memory_command("undo", short_help="Undo an operation.")
@click.argument("operation")
def undo(call: Call, operation: str) -> None:
    """Undo an OPERATION (op_...) as a whole; `audit` lists them. An undo can be undone, too."""
    if not operation.startswith("op_"):
        raise Failed(f"{operation[:40]!r} is no operation; `middleout-mcp audit` lists them, their ids begin with op_")
    result = _forget(call, ForgetIn(ids=[operation], action="restore"))
    call.give(result, lambda page: _show_undone(page, operation, result))


def _show_undone(page: Page, operation: str, result: ForgetOut) -> None:
    page.line(f"{operation} was undone: {counted(len(result.affected or ()), 'record')} put back.")
    if result.notice:
        page.line(result.notice)
    if result.affected and result.operation_id:
        page.line(f"To redo it: middleout-mcp undo {result.operation_id}")

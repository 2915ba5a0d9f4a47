"""The commands about the memory file as a whole: `compress`, `audit` and `reembed`."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import anyio
import click

from middleout_mcp.cli.call import Call, memory_command, request
from middleout_mcp.cli.page import Page
from middleout_mcp.cli.reading import undo_state
from middleout_mcp.cli.report import Failed
from middleout_mcp.memory.contract import CompressIn, CompressOut
from middleout_mcp.memory.owner_contract import AuditIn, AuditOut
from middleout_mcp.records import Caller, EmbeddingState

if TYPE_CHECKING:
    from middleout_mcp.app import App

_MOST_TOKENS = 10_000
_NAMES = {"single": "left single"}
_LOOK_AGAIN_SECONDS = 0.2


@memory_command("compress", short_help="Fold old memories into summaries.")
@click.argument("target", nargs=-1)
@click.option("--dry-run", is_flag=True, help="Only plan, and show the plan.")
@click.option("--run-id", metavar="RUN", help="The run to show again, with --dry-run, or to start.")
def compress(call: Call, target: tuple[str, ...], dry_run: bool, run_id: str | None) -> None:
    """Fold old memories into summaries. TARGET: middle (default), thread:ID, tag:NAME, ids of memories, or cancel."""
    wanted: Any = target[0] if len(target) == 1 else target
    asked = request(CompressIn, "compress", target=wanted, dry_run=dry_run, run_id=run_id, max_tokens=_MOST_TOKENS)

    async def work(app: "App", caller: Caller) -> CompressOut:
        return await _compressed(app, caller, asked)

    result = call.perform(work)
    call.give(result, lambda page: _show_run(page, result))
    if result.status == "failed":
        raise SystemExit(1)


async def _compressed(app: "App", caller: Caller, asked: CompressIn) -> CompressOut:
    """The run when it is over, with all its clusters."""
    result = await app.compress(caller, asked)
    while result.status == "running" and result.run_id is not None:
        await anyio.sleep(_LOOK_AGAIN_SECONDS)
        result = await app.compress(caller, CompressIn(run_id=result.run_id, max_tokens=_MOST_TOKENS))
    while result.cursor is not None and result.run_id is not None:
        more = CompressIn(run_id=result.run_id, cursor=result.cursor, max_tokens=_MOST_TOKENS)
        following = await app.compress(caller, more)
        clusters = [*(result.clusters or ()), *(following.clusters or ())]
        update = {"clusters": clusters, "truncated": following.truncated, "cursor": following.cursor}
        result = result.model_copy(update=update)
    return result


def _show_run(page: Page, result: CompressOut) -> None:
    page.line(f"{result.run_id or 'no run'}: {result.status}", style="bold")
    page.fields({_NAMES.get(name, name): value for name, value in result.report.items()})
    rows = [(each.id, str(len(each.memories)), each.line) for each in result.clusters or ()]
    page.table(("CLUSTER", "MEMORIES", "LINE"), rows, title="Clusters")
    if result.status != "planned":
        return
    if not rows:
        page.line("There is nothing to compress: what is new, pinned or often used is left alone.")
    else:
        page.line()
        page.line(f"Nothing was changed. To start it: middleout-mcp compress --run-id {result.run_id}")


@memory_command("audit", short_help="List what was changed, and check the log.")
@click.option("--memory", metavar="ID", help="Only what touched this memory.")
@click.option("--limit", type=int, help="At most so many; 20 unless given.")
@click.option("--offset", type=int, help="Leave out so many of the newest.")
@click.option("--verify", is_flag=True, help="Check by the log's hashes that nothing in it was changed or removed.")
def audit(call: Call, **given: Any) -> None:
    """List what was changed, by whom and when, newest first, and whether it can be undone."""
    given["verify"] = given["verify"] or None
    asked = request(AuditIn, "audit", **given)

    async def work(app: "App", caller: Caller) -> AuditOut:
        return await app.audit(caller, asked)

    result = call.perform(work)
    call.give(result, lambda page: _show_log(page, asked, result))
    if result.chain is not None and not result.chain.intact:
        raise Failed(f"{result.chain.fault} Compare with a backup of the memory file.")


def _show_log(page: Page, asked: AuditIn, result: AuditOut) -> None:
    rows = [
        (
            each.id,
            page.time(each.at),
            each.kind,
            each.agent,
            str(each.memories or ""),
            undo_state(each.model_dump()),
            " ".join(filter(None, (f"undoes {each.undoes}" if each.undoes else "", each.reason))),
        )
        for each in result.operations
    ]
    page.table(("OPERATION", "WHEN", "WHAT", "WHO", "MEMORIES", "UNDO", "WHY"), rows)
    if not rows:
        page.line("No operation is recorded here; each change a client makes will be.")
    if result.more:
        page.line(f"There are more: --offset {asked.offset + asked.limit} shows the next.")
    if result.chain is not None and result.chain.intact:
        page.line("The log is whole: no operation and no text written by one was changed or removed.")


@memory_command("reembed", short_help="Make all vectors anew.")
def reembed(call: Call) -> None:
    """Make the vectors of all memories anew, with the embedder of the settings. Can be interrupted and run again."""
    settings = call.settings()
    with click.progressbar(length=1, label="Embedding", file=sys.stderr) as bar:

        def progress(done: int, total: int) -> None:
            bar.length = max(total, 1)
            bar.update(done - bar.pos)

        async def work(app: "App", _caller: Caller) -> EmbeddingState:
            return await app.reembed(progress)

        state = call.perform(work, new_file=True, settings=settings)
    call.give(
        asdict(state),
        lambda page: page.line(f"All memories have vectors of {state.name}, {state.dimension} dimensions."),
    )

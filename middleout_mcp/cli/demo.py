"""`middleout-mcp demo`: the real server, started as a client starts it, shown step by step.

The server runs as a child process over stdio with a memory file of its own in a temporary folder, so nothing of the
user's is read or written. Every step is one or two tool calls; it is shown with what a model reads of the answer, and
then checked against the structured result and, where that is the point, against the bytes of the memory file. The
first step that does not hold what it says ends the demo with exit code 1.
"""

import json
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import cycle
from pathlib import Path
from typing import Any

import anyio
import click
from mcp import Client, MCPError, StdioServerParameters
from mcp.types import CallToolResult, TextContent

from middleout_mcp.cli.report import Failed, report, report_options

_RANDOM = "51Nq7Zt4mWx8Kb2Rv6Yc9Hd3Lf"
FAKE_KEY = f"sk_live_{_RANDOM}"  # in two parts, for scanners that read this file
_TIMEOUT_SECONDS = 60
_ASK_AGAIN_SECONDS = 0.05


@dataclass(frozen=True)
class Call:
    """One tool call of a step: what was asked, what a model reads, and the structured result (empty on an error)."""

    tool: str
    arguments: dict[str, Any]
    text: str
    result: dict[str, Any]
    failed: bool


@dataclass
class Step:
    """One step of the demo. `checks` maps what must hold, as a sentence, to whether it does."""

    title: str
    calls: list[Call] = field(default_factory=list)
    checks: dict[str, bool] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether all of it holds; a step that checked nothing has shown nothing."""
        return bool(self.checks) and all(self.checks.values())


@click.command("demo", short_help="Show how it works, on a sample.")
@click.option(
    "--keep",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the memory file of the demo in this new or empty folder.",
)
@report_options
def demo_command(keep: Path | None, as_json: bool, out: Path | None) -> None:
    """Show on a sample conversation how it remembers, finds, opens and forgets; nothing of yours is touched."""
    with _home(keep) as home:
        try:
            steps = anyio.run(_play, home, None if as_json else _show)
        except* (MCPError, OSError) as group:
            raise Failed(f"the server did not answer: {_first(group)}") from None
    ok = all(step.ok for step in steps)
    shown = [{**asdict(step), "ok": step.ok} for step in steps]
    report({"ok": ok, "kept": str(keep) if keep else None, "steps": shown}, as_json=as_json, out=out)
    if not as_json:
        _close(ok, keep)
    if not ok:
        raise SystemExit(1)


@contextmanager
def _home(keep: Path | None) -> Iterator[Path]:
    """The folder of the memory file: `keep`, or a temporary one that is gone afterwards."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="middleout-demo-", ignore_cleanup_errors=True) as folder:
            yield Path(folder)
        return
    keep.mkdir(parents=True, exist_ok=True)
    if any(keep.iterdir()):
        raise Failed(f"{keep} is not empty; name a new or empty folder for --keep")
    yield keep.resolve()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error inside nested groups, as task groups raise them."""
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner


async def _play(home: Path, show: Callable[[Step], None] | None) -> list[Step]:
    """Start the server on `home` and run the steps, showing each, up to the first that does not hold."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "middleout_mcp"],
        # With no session left alone there is something to compress after a few minutes.
        env={"MIDDLEOUT_HOME": str(home), "MIDDLEOUT_ACTIVE_SESSIONS": "0"},
        cwd=Path(__file__).parents[2],
    )
    steps = []
    async with Client(server, read_timeout_seconds=_TIMEOUT_SECONDS) as client:
        async for step in Tour(client, home, load_sample(datetime.now(UTC))).steps():
            steps.append(step)
            if show is not None:
                show(step)
            if not step.ok:
                break
    return steps


def load_sample(now: datetime) -> dict[str, Any]:
    """The sample conversation, moved to the days before `now`; a task in it is due nine days after."""
    text = resources.files("middleout_mcp.cli").joinpath("sample.json").read_text(encoding="utf-8")
    due = (now + timedelta(days=9)).strftime("%Y-%m-%d")
    sample: dict[str, Any] = json.loads(text.replace("{key}", FAKE_KEY).replace("{due}", due))
    for stretch in sample["stretches"]:
        day = (now - timedelta(days=stretch.pop("days_ago"))).strftime("%Y-%m-%d")
        for message in stretch["messages"]:
            message["at"] = f"{day}T{message['at']}:00Z"
    return sample


class Tour:
    """The steps, in order, against one connected server."""

    def __init__(self, client: Client, home: Path, sample: dict[str, Any]) -> None:
        self._client, self._home, self._sample = client, home, sample
        self._episodes: list[str] = []
        """The episode behind the answer to each question."""
        self._run: dict[str, Any] = {}
        """The compression: first what was planned, then what was applied."""

    async def steps(self) -> AsyncIterator[Step]:
        """Each step after it was done and checked."""
        yield await self._connect()
        for stretch in self._sample["stretches"]:
            yield await self._remember(stretch)
        yield self._screened()
        for question in self._sample["questions"]:
            yield await self._recall(**question)
        yield await self._open()
        yield await self._plan()
        yield await self._compress()
        yield await self._restore()
        yield await self._forget(**self._sample["forget"])

    async def _call(self, step: Step, tool: str, **arguments: Any) -> Call:
        """Call a tool as part of a step, with a sign of life on a terminal while it works."""
        async with _waiting(f"{tool} ..."):
            answer = await self._client.call_tool(tool, arguments)
        call = Call(tool, arguments, _text(answer), answer.structured_content or {}, bool(answer.is_error))
        step.calls.append(call)
        return call

    async def _connect(self) -> Step:
        tools = (await self._client.list_tools()).tools
        server = self._client.server_info
        step = Step(f"Connected to {server.name} {server.version} over stdio" if server else "Connected over stdio")
        step.checks["the server says who it is"] = server is not None and server.name == "middleout-mcp"
        names = sorted(tool.name for tool in tools)
        step.checks[f"it offers {', '.join(names)}"] = names == sorted(
            ("remember", "recall", "open_episode", "forget", "compress")
        )
        return step

    async def _remember(self, stretch: dict[str, Any]) -> Step:
        step = Step(f"Remember a conversation: {stretch['thread']}")
        call = await self._call(step, "remember", **stretch)
        stored = [result for result in call.result.get("results", ()) if "stored" in result["actions"]]
        given = len(stretch["memories"])
        step.checks[f"{given} memories are stored"] = len(stored) == given
        step.checks["its messages are one episode that can be opened"] = bool(call.result.get("episode"))
        return step

    def _screened(self) -> Step:
        step = Step("The API key in that conversation")
        step.checks["the key is in no file of the store"] = not self._on_disk(FAKE_KEY)
        step.checks["the sentence around it is"] = self._on_disk("order page asks for the API key")
        return step

    async def _recall(self, query: str, expect: str) -> Step:
        step = Step(f"Recall: {query}")
        call = await self._call(step, "recall", query=query, limit=3)
        hits = [item for item in call.result.get("items", ()) if expect in item["text"]]
        step.checks[f'"{expect}" is among the best three'] = bool(hits)
        self._episodes += [hit.get("episode_id", "") for hit in hits[:1]]
        return step

    async def _open(self) -> Step:
        """Follow the pointer of the first question's answer to what was said."""
        stretch = self._sample["stretches"][0]
        step = Step(f"Open the episode behind the answer to: {self._sample['questions'][0]['query']}")
        opened = await self._call(step, "open_episode", id=self._episodes[0])
        said = [turn["text"] for turn in opened.result.get("turns", ())]
        plain = [message["text"] for message in stretch["messages"] if FAKE_KEY not in message["text"]]
        step.checks[f"all {len(stretch['messages'])} messages are there"] = len(said) == len(stretch["messages"])
        step.checks["each reads as it was said, but for the key"] = set(plain) <= set(said)
        return step

    async def _plan(self) -> Step:
        step = Step("Plan a compression, changing nothing")
        before = await self._client.call_tool("open_episode", {"id": "stats"})
        call = await self._call(step, "compress", target="middle", dry_run=True)
        self._run = (await self._ended(step, call)).result
        step.checks["there is a plan"] = self._run.get("status") == "planned" and bool(self._run.get("clusters"))
        after = await self._client.call_tool("open_episode", {"id": "stats"})
        step.checks["no memory was changed"] = _memories(before) == _memories(after) != {}
        return step

    async def _ended(self, step: Step, call: Call) -> Call:
        """The call, or where that was too early the last one that asked for its run again."""
        with anyio.move_on_after(_TIMEOUT_SECONDS):
            while call.result.get("status") == "running":
                await anyio.sleep(_ASK_AGAIN_SECONDS)
                del step.calls[1:]
                call = await self._call(step, "compress", run_id=call.result["run_id"])
        return call

    async def _compress(self) -> Step:
        """Apply the plan, and open the summary that one of the questions is answered with now."""
        step = Step("Compress, and open a summary to what it was made from")
        call = await self._call(step, "compress", run_id=self._run.get("run_id"), dry_run=False)
        self._run = (await self._ended(step, call)).result
        sizes = self._run.get("report", {}).get("compressed_bytes", {"before": 0, "after": 0})
        smaller = f"{sizes['before']} bytes of memories became {sizes['after']}"
        step.checks[smaller] = self._run.get("status") == "awaiting" and 0 < sizes["after"] < sizes["before"]
        members: list[str] = next((cluster["memories"] for cluster in self._run.get("clusters", ())), [])
        found = await self._call(step, "recall", query=self._sample["questions"][0]["query"], limit=3)
        summary = next((item["id"] for item in found.result.get("items", ()) if item["kind"] == "summary"), "")
        step.checks["a summary is found in their place"] = bool(summary) and not {*members} & {*_ids(found.result)}
        opened = await self._call(step, "open_episode", id=summary)
        made_from = [item["id"] for item in opened.result.get("memories", ())]
        step.checks["it opens to exactly what it was made from"] = made_from == members != []
        return step

    async def _restore(self) -> Step:
        step = Step("Undo the compression")
        operation = self._run.get("report", {}).get("operation_id", "")
        await self._call(step, "forget", ids=[operation], action="restore")
        found = await self._call(step, "recall", query=self._sample["questions"][0]["query"], limit=3)
        members = {member for cluster in self._run.get("clusters", ()) for member in cluster["memories"]}
        step.checks["what was compressed is found again"] = bool(members & {*_ids(found.result)})
        kinds = {item["kind"] for item in found.result.get("items", ())}
        step.checks["no summary is"] = bool(kinds) and "summary" not in kinds
        return step

    async def _forget(self, query: str, expect: str) -> Step:
        step = Step("Forget for good what was said about the pay")
        offered = await self._call(step, "forget", query=query, action="erase")
        ids = [each["id"] for each in offered.result.get("candidates", ()) if expect in each["text"]]
        step.checks["first it only shows what could be meant"] = bool(ids) and self._on_disk(expect)
        erased = await self._call(step, "forget", ids=ids, action="erase", reason="the user asked for it")
        step.checks["it is erased, copies included"] = erased.result.get("erasure") == "complete"
        again = await self._call(step, "recall", query=query)
        step.checks["asked again, it is not found"] = not again.failed and expect not in " ".join(_texts(again))
        step.checks["its bytes are in no file of the store"] = not self._on_disk(expect)
        return step

    def _on_disk(self, text: str) -> bool:
        """Whether the bytes of a text are in any file of the store."""
        files = [path for path in self._home.rglob("*") if path.is_file()]
        return any(text.encode() in path.read_bytes() for path in files)


def _text(answer: CallToolResult) -> str:
    return "\n".join(block.text for block in answer.content if isinstance(block, TextContent))


def _texts(call: Call) -> list[str]:
    return [item["text"] for item in call.result.get("items", ())]


def _ids(result: dict[str, Any]) -> list[str]:
    return [item["id"] for item in result.get("items", ())]


def _memories(answer: CallToolResult) -> Any:
    """The counts of memories in an answer of `open_episode` about `stats`."""
    return ((answer.structured_content or {}).get("details") or {}).get("memories", {})


@asynccontextmanager
async def _waiting(what: str) -> AsyncIterator[None]:
    """A spinner on stderr while something takes longer than a moment; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_spin, what)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def _spin(what: str) -> None:
    try:
        for sign in cycle("|/-\\"):
            await anyio.sleep(0.15)
            click.echo(f"\r{sign} {what}", err=True, nl=False)
    finally:
        click.echo("\r" + " " * (len(what) + 2) + "\r", err=True, nl=False)


def _show(step: Step) -> None:
    """Print a step: its title, each call with the text a model reads, and what was checked."""
    click.echo()
    click.secho(step.title, bold=True)
    for call in step.calls:
        click.secho(f"  {call.tool}({_brief(call.arguments)})", fg="cyan")
        for line in call.text.splitlines():
            click.echo(f"    {line}")
    for sentence, holds in step.checks.items():
        click.secho(f"  {'ok    ' if holds else 'FAILED'} {sentence}", fg="green" if holds else "red")


def _brief(arguments: dict[str, Any]) -> str:
    """Arguments on one line; of lists of objects only how many there are."""
    shown = {
        name: f"[{len(value)} {name}]"
        if isinstance(value, list) and value and isinstance(value[0], dict)
        else json.dumps(value, ensure_ascii=False)
        for name, value in arguments.items()
    }
    return ", ".join(f"{name}={value}" for name, value in shown.items())


def _close(ok: bool, keep: Path | None) -> None:
    click.echo()
    if not ok:
        click.secho("The demo stopped at a step that did not do what it says.", fg="red", err=True)
    elif keep is None:
        click.echo("All of this was real; the demo's memory file is deleted again. How to connect a client: README.md")
    else:
        click.echo(f"All of this was real; the demo's memory file is in {keep}.")

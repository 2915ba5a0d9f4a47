"""The owner of the file: sees what is private to any agent, leaves no trace by looking, and is unknown to servers."""

import ast
from pathlib import Path

import pytest

import middleout_mcp.server
from middleout_mcp.app import App, open_app
from middleout_mcp.errors import NotFound
from middleout_mcp.memory.contract import ForgetIn, OpenIn, RecallIn, RememberIn
from middleout_mcp.memory.owner_contract import AuditIn, ListIn
from middleout_mcp.records import Caller
from middleout_mcp.settings import Settings
from tests.fakes import FakeClock, FakeEmbedder

pytestmark = pytest.mark.anyio


async def stored(app: App, caller: Caller, *texts: str, **fields: object) -> list[str]:
    request = RememberIn.model_validate({"memories": [{"text": text, **fields} for text in texts]})
    return [result.id or "" for result in (await app.remember(caller, request)).results]


async def test_what_is_private_to_an_agent_is_seen_by_it_and_by_the_owner_alone(app: App, caller: Caller) -> None:
    (secret,) = await stored(app, caller, "The diary lies in the attic.", privacy="private")
    other = app.caller("another-client", "process-2")
    for who, sees in ((caller, True), (app.owner(), True), (other, False)):
        found = (await app.recall(who, RecallIn(query="diary attic"))).items
        assert [item.id for item in found] == [secret] * sees
        offered = (await app.forget(who, ForgetIn(query="diary attic"))).candidates or []
        assert [each.id for each in offered] == [secret] * sees
        assert [item.id for item in (await app.list_memories(who, ListIn())).items] == [secret] * sees
    assert (await app.open_episode(app.owner(), OpenIn(id=secret))).text == "The diary lies in the attic."
    with pytest.raises(NotFound):
        await app.open_episode(other, OpenIn(id=secret))
    assert (await app.forget(app.owner(), ForgetIn(ids=[secret]))).affected == [secret]


async def test_the_owner_keeps_to_the_granted_namespaces(tmp_path: Path, app: App, caller: Caller) -> None:
    (mine,) = await stored(app, caller, "The diary lies in the attic.", privacy="private")
    elsewhere = open_app(Settings(home=tmp_path, namespace="other"), clock=FakeClock(), embedder=FakeEmbedder())
    async with elsewhere.at_hand():
        assert (await elsewhere.list_memories(elsewhere.owner(), ListIn())).items == []
        with pytest.raises(NotFound):
            await elsewhere.open_episode(elsewhere.owner(), OpenIn(id=mine))


async def test_looking_from_outside_is_no_use_and_makes_no_session(app: App, caller: Caller) -> None:
    (tea,) = await stored(app, caller, "Tea is hot.")
    await app.recall(app.owner(), RecallIn(query="tea"))
    await app.open_episode(app.owner(), OpenIn(id=tea))
    await app.remember(app.owner(), RememberIn.model_validate({"memories": [{"id": tea, "pinned": True}]}))
    await app.settled()
    parts = await app.parts()
    (memory,) = await parts.store.memories.get(caller.grant, [tea])
    assert (memory.use, memory.pinned) == (0.0, True)
    assert [session.agent for session in await parts.store.threads.sessions(caller.grant)] == ["test-client"]
    await app.recall(caller, RecallIn(query="tea"))
    await app.settled()
    (memory,) = await parts.store.memories.get(caller.grant, [tea])
    assert memory.use > 0


async def test_a_listing_holds_what_is_suppressed_and_counts_what_is_sensitive(app: App, caller: Caller) -> None:
    hidden, shown = await stored(app, caller, "Hidden.", "Shown.")
    await stored(app, caller, "Heart attack.", privacy="sensitive")
    await app.forget(caller, ForgetIn(ids=[hidden], action="suppress", until="2027-01-01"))
    listed = await app.list_memories(app.owner(), ListIn())
    assert {item.id: item.marks for item in listed.items} == {
        hidden: ["weak", "suppressed until 2027-01-01T00:00:00Z"],
        shown: ["weak"],
    }
    assert [each.count for each in listed.withheld or ()] == [1]


async def test_the_log_tells_what_was_done_and_that_it_is_whole(app: App, caller: Caller) -> None:
    (tea,) = await stored(app, caller, "Tea is hot.")
    gone = await app.forget(caller, ForgetIn(ids=[tea]))
    back = await app.forget(app.owner(), ForgetIn(ids=[gone.operation_id or ""], action="restore"))
    log = await app.audit(app.owner(), AuditIn(verify=True))
    assert [(each.kind, each.agent, each.undoable) for each in log.operations] == [
        ("restore", "command line", True),
        ("archive", "test-client", False),
        ("remember", "test-client", True),
    ]
    assert log.operations[1].undone_by == back.operation_id
    assert log.chain is not None and log.chain.intact


async def test_an_examination_finds_nothing_wrong_with_a_new_file(app: App, embedder: FakeEmbedder) -> None:
    health = await app.examine(app.owner())
    assert (health.damage, health.chain_fault, health.embedder_fault) == (None, None, None)
    embedder.failing = True
    assert "told to fail" in ((await app.examine(app.owner())).embedder_fault or "")


async def test_a_client_cannot_be_the_owner_whatever_it_calls_itself(tmp_path: Path) -> None:
    app = open_app(Settings(home=tmp_path, agent="command line"))
    assert app.owner().owner
    for name in ("command line", "owner", None):
        assert not app.caller(name, "key").owner


def test_no_module_of_the_server_names_the_owner() -> None:
    folder = Path(middleout_mcp.server.__file__).parent
    for path in folder.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        names |= {word.arg or "" for word in ast.walk(tree) if isinstance(word, ast.keyword)}
        assert names.isdisjoint({"owner", "list_memories", "audit", "examine"}), path

"""Resources open what `open_episode` opens; prompts bring what a person asks for."""

import re
from urllib.parse import quote

import pytest
from mcp import Client, MCPError
from mcp.types import INVALID_PARAMS

from tests.server.connect import ERAS, ask, connected, new_app

HARD_THREADS = [
    "plain",
    "two words",
    "a/b/c",
    "/home/ann/project",
    "C:\\work",
    "50%",
    "x%2Fy",
    "a?b#c&d=e,f",
    "..",
    "日本語",
    "é",
]


async def read(client: Client, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert content.mime_type == "text/plain"
    return content.text


async def fault(client: Client, uri: str) -> MCPError:
    with pytest.raises(MCPError) as raised:
        await client.read_resource(uri)
    return raised.value


def unmarked(text: str) -> str:
    return re.sub(r"stored [0-9a-f]{8}", "stored", text)


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_the_resources_are_those_of_the_design(tmp_path, era):
    async with connected(new_app(tmp_path), era) as client:
        resources = (await client.list_resources()).resources
        templates = (await client.list_resource_templates()).resource_templates
    assert {resource.uri for resource in resources} == {"memory://buffer", "memory://stats"}
    assert {template.uri_template for template in templates} == {
        "memory://threads/{thread}/buffer{?visible_from}",
        "memory://threads/{thread}/context",
        "memory://episodes/{id}",
        "memory://memories/{id}",
    }
    assert all(each.description and each.title for each in (*resources, *templates))


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_every_resource_is_what_open_episode_renders(tmp_path, era):
    app = new_app(tmp_path)
    async with connected(app, era) as client:
        stored = await ask(
            client,
            "remember",
            memories=["Ann drinks green tea."],
            messages=[{"role": "user", "text": "Green tea, please."}],
            thread="t",
            episode="Ann orders tea.",
        )
        episode, memory = stored["episode"]["id"], stored["results"][0]["id"]
        await ask(client, "open_episode", id=memory)
        await app.settled()  # opening counts as a use, once a session, which the memory then tells
        for uri, arguments in {
            "memory://buffer": {},
            "memory://stats": {"id": "stats"},
            "memory://threads/t/buffer": {"thread": "t"},
            "memory://threads/t/buffer?visible_from=2": {"thread": "t", "visible_from": "2"},
            "memory://threads/t/context": {"id": "context", "thread": "t"},
            f"memory://episodes/{episode}": {"id": episode},
            f"memory://memories/{memory}": {"id": memory},
        }.items():
            opened = await client.call_tool("open_episode", {**arguments, "max_tokens": 10_000})
            assert unmarked(await read(client, uri)) == unmarked(opened.content[0].text), uri


@pytest.mark.anyio
@pytest.mark.parametrize("thread", HARD_THREADS)
async def test_a_thread_of_any_name_is_reached_through_its_encoded_uri(tmp_path, thread):
    async with connected(new_app(tmp_path), "auto") as client:
        await ask(client, "remember", messages=[{"role": "user", "text": "Green tea, please."}], thread=thread)
        name = quote(thread, safe="")
        assert "Green tea, please." in await read(client, f"memory://threads/{name}/context")
        assert await read(client, f"memory://threads/{name}/buffer?visible_from=2026-01-01")


@pytest.mark.anyio
async def test_an_id_of_another_namespace_is_answered_like_one_that_never_existed(tmp_path):
    async with connected(new_app(tmp_path, namespace="ann"), "auto") as client:
        stored = await ask(
            client,
            "remember",
            memories=["Green tea."],
            messages=[{"role": "user", "text": "Green tea."}],
            thread="theirs",
        )
    async with connected(new_app(tmp_path, namespace="bob"), "auto") as client:
        for foreign, random, uri in (
            (stored["results"][0]["id"], "m_000000000", "memory://memories/{}"),
            (stored["episode"]["id"], "e_000000000", "memory://episodes/{}"),
            ("theirs", "unheard", "memory://threads/{}/buffer"),
            ("theirs", "unheard", "memory://threads/{}/context"),
        ):
            errors = [await fault(client, uri.format(name)) for name in (foreign, random)]
            assert [error.code for error in errors] == [INVALID_PARAMS] * 2
            assert errors[0].message.replace(foreign, "_") == errors[1].message.replace(random, "_")


@pytest.mark.anyio
async def test_unknown_resources_are_protocol_errors(tmp_path):
    async with connected(new_app(tmp_path), "auto") as client:
        for uri in ("memory://nothing", "memory://memories/stats", "memory://episodes/m_1", "file:///etc/passwd"):
            assert (await fault(client, uri)).code == INVALID_PARAMS


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_the_three_prompts_are_described_with_their_arguments(tmp_path, era):
    async with connected(new_app(tmp_path), era) as client:
        prompts = (await client.list_prompts()).prompts
    assert [prompt.name for prompt in prompts] == ["save", "brief", "review"]
    assert all(prompt.title and prompt.description for prompt in prompts)
    assert all(argument.description for prompt in prompts for argument in prompt.arguments or ())


async def said(client: Client, prompt: str, **arguments: str) -> str:
    (message,) = (await client.get_prompt(prompt, arguments)).messages
    return message.content.text


@pytest.mark.anyio
async def test_save_asks_eight_questions_and_names_the_thread(tmp_path):
    async with connected(new_app(tmp_path), "auto") as client:
        text = await said(client, "save", thread="kitchen {table}")
        assert re.findall(r"(?m)^(\d)\. ", text) == list("12345678")
        assert "'kitchen {table}'" in text
        for word in ("`memories`", "`messages`", "`episode`", "`used`", "`wrong`"):
            assert word in text
        assert "{" not in await said(client, "save")


@pytest.mark.anyio
async def test_brief_brings_what_matters_now_as_marked_data(tmp_path):
    async with connected(new_app(tmp_path), "auto") as client:
        await ask(client, "remember", memories=[{"text": "Buy {green} tea.", "kind": "task", "due": "2026-01-02"}])
        text = await said(client, "brief")
        assert "Buy {green} tea." in text
        assert "data, not instructions" in text
        await ask(client, "remember", memories=[{"text": "The oven is new.", "scope": "kitchen"}, "It rained."])
        everywhere, kitchen, garden = [await said(client, "brief", scope=scope) for scope in ("", "kitchen", "garden")]
        for text in (everywhere, kitchen, garden):  # what has no scope holds in every one
            assert "Buy {green} tea." in text
            assert "It rained." in text
        assert "The oven is new." in everywhere
        assert "The oven is new." in kitchen
        assert "The oven is new." not in garden


@pytest.mark.anyio
async def test_review_brings_the_latest_changes_with_what_undoes_them(tmp_path):
    async with connected(new_app(tmp_path), "auto") as client:
        stored = await ask(client, "remember", memories=["Ann drinks green tea."])
        archived = await ask(client, "forget", ids=[stored["results"][0]["id"]])
        text = await said(client, "review")
        assert stored["operation_id"] in text
        assert archived["operation_id"] in text
        assert "restore" in text


@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_an_unknown_prompt_or_argument_is_a_protocol_error_that_says_what_there_is(tmp_path, era):
    async with connected(new_app(tmp_path), era) as client:
        with pytest.raises(MCPError, match="there are save, brief, review") as unknown:
            await client.get_prompt("remind", {})
        assert unknown.value.code == INVALID_PARAMS
        with pytest.raises(MCPError, match="it takes thread"):
            await client.get_prompt("save", {"colour": "red"})


@pytest.mark.anyio
async def test_no_stored_text_stands_in_instructions_or_descriptions(tmp_path):
    app = new_app(tmp_path)
    async with connected(app, "legacy") as client:
        await ask(
            client,
            "remember",
            memories=["Zanzibar is far."],
            messages=[{"role": "user", "text": "Zanzibar"}],
            thread="Zanzibar",
            episode="Zanzibar",
        )
    async with connected(app, "legacy") as client:
        offered = [
            client.instructions,
            (await client.list_tools()).model_dump_json(),
            (await client.list_prompts()).model_dump_json(),
            (await client.list_resources()).model_dump_json(),
            (await client.list_resource_templates()).model_dump_json(),
        ]
    assert not [text for text in offered if "Zanzibar" in text]

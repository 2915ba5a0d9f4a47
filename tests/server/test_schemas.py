"""The tool list costs tokens in every conversation: what it says, and how little it weighs."""

import json
from typing import Any

import pytest
from mcp.types import Tool
from pydantic import BaseModel

from middleout_mcp.memory.contract import RememberIn
from middleout_mcp.server.schemas import input_schema, output_schema
from tests.server.connect import ERAS, connected, new_app

PARAMETERS = {
    "remember": "memories messages thread session episode used wrong",
    "recall": (
        "query limit kinds tags scope since until as_of thread session viewpoint holder purpose include used "
        "max_tokens cursor"
    ),
    "open_episode": "id thread visible_from cursor max_tokens",
    "forget": "ids query action until spans reason",
    "compress": "target dry_run run_id summaries cursor max_tokens",
}
RESULTS = {
    "remember": "results episode operation_id notice",
    "recall": "recall_id items packets draft discarded withheld below_floor notice truncated cursor",
    "open_episode": "id type line text turns memories buffer details truncated cursor",
    "forget": "action affected derived candidates erasure operation_id notice",
    "compress": "run_id status report clusters truncated cursor",
}


async def tool_list(tmp_path, era: str) -> tuple[list[Tool], int]:
    async with connected(new_app(tmp_path), era) as client:
        answer = await client.list_tools()
    wire = answer.model_dump(mode="json", by_alias=True, exclude_none=True)
    return answer.tools, len(json.dumps(wire).encode())


# CASE 8
@pytest.mark.anyio
@pytest.mark.parametrize("era", ERAS)
async def test_the_tool_list_is_small(tmp_path, era):
    tools, size = await tool_list(tmp_path, era)
    assert size < 12_000
    assert sum(len(f"{tool.name}{tool.description}{json.dumps(tool.input_schema)}") for tool in tools) <= 6_000


@pytest.mark.anyio
async def test_there_are_five_tools_with_the_parameters_and_results_of_the_design(tmp_path):
    tools, _ = await tool_list(tmp_path, "auto")
    assert {tool.name: " ".join(tool.input_schema["properties"]) for tool in tools} == PARAMETERS
    assert {tool.name: " ".join(tool.output_schema["properties"]) for tool in tools} == RESULTS
    assert all(tool.input_schema["type"] == tool.output_schema["type"] == "object" for tool in tools)
    assert all(tool.input_schema["additionalProperties"] is False for tool in tools)


@pytest.mark.anyio
async def test_every_tool_has_a_title_and_all_four_hints_and_two_are_always_loaded(tmp_path):
    tools, _ = await tool_list(tmp_path, "auto")
    hints = ("read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint")
    assert all(tool.title and tool.description and tool.annotations for tool in tools)
    assert all(getattr(tool.annotations, hint) is not None for tool in tools for hint in hints)
    assert {tool.name for tool in tools if tool.annotations.read_only_hint} == {"recall", "open_episode"}
    assert {tool.name for tool in tools if tool.annotations.destructive_hint} == {"forget"}
    loaded = {tool.name for tool in tools if (tool.meta or {}).get("anthropic/alwaysLoad")}
    assert loaded == {"remember", "recall"}


def every_node(node: Any) -> list[dict[str, Any]]:
    if isinstance(node, list):
        return [found for each in node for found in every_node(each)]
    if isinstance(node, dict):
        return [node, *(found for each in node.values() for found in every_node(each))]
    return []


@pytest.mark.anyio
async def test_no_schema_has_titles_nulls_or_definitions_and_no_result_has_descriptions(tmp_path):
    tools, _ = await tool_list(tmp_path, "auto")
    for tool in tools:
        nodes = every_node([tool.input_schema, tool.output_schema])
        assert not [node for node in nodes if {"title", "$ref", "$defs"} & set(node) and "type" in node]
        assert {"type": "null"} not in nodes
        assert not [node for node in nodes if node.get("default", 1) in (None, [], "")]
        assert not [node for node in every_node(tool.output_schema) if isinstance(node.get("description"), str)]


class _Leaf(BaseModel):
    colour: str


class _Branch(BaseModel):
    leaves: list[_Leaf]


class _Tree(BaseModel):
    crown: _Branch
    fallen: list[_Leaf] = []


def test_a_definition_used_twice_is_kept_once_and_one_used_once_stands_where_it_is_used():
    for schema in (input_schema(_Tree), output_schema(_Tree)):
        leaf = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}
        assert schema["$defs"] == {"_Leaf": leaf}
        leaves = {"type": "array", "items": {"$ref": "#/$defs/_Leaf"}}
        assert schema["properties"]["fallen"] == leaves
        assert schema["properties"]["crown"]["properties"] == {"leaves": leaves}


def test_a_definition_that_another_tool_spells_out_is_only_an_object():
    schema = output_schema(_Tree, known=[_Leaf])
    assert schema["$defs"] == {"_Leaf": {"type": "object"}}
    assert output_schema(_Branch, known=[_Leaf])["properties"]["leaves"]["items"] == {"type": "object"}


def test_a_memory_is_spelled_out_where_it_is_given():
    schema = input_schema(RememberIn)
    assert "$defs" not in schema
    assert schema["properties"]["memories"]["items"]["anyOf"][1]["properties"]["ref"]["type"] == "string"


@pytest.mark.anyio
async def test_the_instructions_are_short_enough_to_arrive_whole(tmp_path):
    async with connected(new_app(tmp_path), "legacy") as client:
        assert len(client.instructions) < 4_096
        assert client.server_info.name == "middleout-mcp"
        assert all(len(tool.description) < 4_096 for tool in (await client.list_tools()).tools)

"""Slim JSON Schemas of the tools' arguments and results: they cost tokens in every conversation.

Pydantic writes a title on every field, a union with null and a null default on everything optional, and a definition
for every nested model. A model that calls a tool needs none of that: what is optional is what is not required.
"""

from collections.abc import Collection
from typing import Any

from pydantic import BaseModel

_EMPTY: tuple[Any, ...] = (None, [], {}, "")


def input_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The schema of a tool's arguments, with the field descriptions and without those of the models."""
    return _slim(model, keep_descriptions=True)


def output_schema(model: type[BaseModel], known: Collection[type[BaseModel]] = ()) -> dict[str, Any]:
    """The schema of a tool's result: no descriptions, no defaults; null never occurs, absent fields are left out.

    Of `known` models, which the schema of another tool spells out, it says only that they are objects.
    """
    return _slim(model, keep_descriptions=False, known={each.__name__ for each in known})


def _slim(model: type[BaseModel], *, keep_descriptions: bool, known: Collection[str] = ()) -> dict[str, Any]:
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    definitions.update({name: {"type": "object"} for name in known})
    for definition in (schema, *definitions.values()):
        definition.pop("description", None)  # a model's docstring is for readers of the code
    for definition in definitions.values():
        definition.pop("additionalProperties", None)  # an unknown field is refused by name, schema or not
    slim = {name: _without_noise(each, keep_descriptions) for name, each in definitions.items()}
    root = _without_noise(schema, keep_descriptions)
    return _inlined(root, slim)


def _without_noise(node: Any, keep_descriptions: bool) -> Any:
    """A copy without titles, null alternatives and empty defaults; `type` stays beside `enum`."""
    if isinstance(node, list):
        return [_without_noise(each, keep_descriptions) for each in node]
    if not isinstance(node, dict):
        return node
    copy = {key: value for key, value in node.items() if key != "title" or not isinstance(value, str)}
    if "default" in copy and (copy["default"] in _EMPTY or not keep_descriptions):
        del copy["default"]
    if not keep_descriptions and isinstance(copy.get("description"), str):
        del copy["description"]
    if copy.get("additionalProperties") is True:
        del copy["additionalProperties"]  # the default
    for key, value in copy.items():
        if key == "properties":  # its keys are names of fields, whatever they are called
            copy[key] = {name: _without_noise(each, keep_descriptions) for name, each in value.items()}
        elif key not in ("enum", "required", "default"):
            copy[key] = _without_noise(value, keep_descriptions)
    return _without_null(copy)


def _without_null(node: dict[str, Any]) -> dict[str, Any]:
    alternatives = node.get("anyOf")
    if alternatives is None:
        return node
    left = [each for each in alternatives if each != {"type": "null"}]
    if len(left) > 1:
        return {**node, "anyOf": left}
    return {**left[0], **{key: value for key, value in node.items() if key != "anyOf"}}


def _inlined(root: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """`root` with definitions used once put where they are used; the others stay in `$defs`."""
    uses = dict.fromkeys(definitions, 0)
    _count(root, uses)
    for each in definitions.values():
        _count(each, uses)
    once = {name for name, count in uses.items() if count == 1}
    inlined = _resolve(root, definitions, once)
    shared = {name: _resolve(each, definitions, once) for name, each in definitions.items() if uses[name] > 1}
    return {**inlined, "$defs": shared} if shared else inlined


def _count(node: Any, uses: dict[str, int]) -> None:
    if isinstance(node, list):
        for each in node:
            _count(each, uses)
    elif isinstance(node, dict):
        reference = node.get("$ref")
        if isinstance(reference, str):
            uses[_name(reference)] += 1
        for each in node.values():
            _count(each, uses)


def _resolve(node: Any, definitions: dict[str, Any], once: set[str]) -> Any:
    if isinstance(node, list):
        return [_resolve(each, definitions, once) for each in node]
    if not isinstance(node, dict):
        return node
    reference = node.get("$ref")
    if isinstance(reference, str) and _name(reference) in once:
        beside = {key: value for key, value in node.items() if key != "$ref"}
        return {**_resolve(definitions[_name(reference)], definitions, once), **beside}
    return {key: _resolve(value, definitions, once) for key, value in node.items()}


def _name(reference: str) -> str:
    return reference.rpartition("/")[2]

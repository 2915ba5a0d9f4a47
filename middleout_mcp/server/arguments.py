"""From raw tool arguments to a request, or to one sentence that names the argument and the mend.

Values are never repeated in a sentence: they may be memory text.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from middleout_mcp.errors import InvalidInput

RequestT = TypeVar("RequestT", bound=BaseModel)

_WANTED = {
    "string_type": "text",
    "string_sub_type": "text",
    "list_type": "a list",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a smaller whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dict_type": "an object",
}
_NAME_SHOWN = 60


def parse_request(model: type[RequestT], tool: str, arguments: Mapping[str, Any]) -> RequestT:
    """The request of a tool call. Raises InvalidInput with one sentence."""
    given = {name: value for name, value in _whole(dict(arguments)).items() if value is not None}
    try:
        return model.model_validate({name: _unpacked(model, name, value) for name, value in given.items()})
    except ValidationError as error:
        raise InvalidInput(_sentence(model, tool, error.errors(include_url=False, include_input=False))) from None


def _whole(value: Any) -> Any:
    """The value with half surrogate pairs, which no file can hold, replaced by U+FFFD (JSON can spell them)."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return value
    if isinstance(value, list):
        return [_whole(each) for each in value]
    if isinstance(value, dict):
        return {_whole(name): _whole(each) for name, each in value.items()}
    return value


def _unpacked(model: type[BaseModel], name: str, value: Any) -> Any:
    """A list that the client sent as a string of JSON, read; only where text would be wrong, so that a query or a
    memory that looks like JSON arrives as it was written.
    """
    field = model.model_fields.get(name)
    if field is None or not isinstance(value, str) or str in _alternatives(field.annotation):
        return value
    try:
        unpacked = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return _whole(unpacked) if isinstance(unpacked, list) else value


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


def _sentence(model: type[BaseModel], tool: str, errors: Sequence[ErrorDetails]) -> str:
    """Of a union, the error of the branch that was meant: that an object is no text is not worth saying."""
    error = next((each for each in errors if not _says_not_text(each)), errors[0])
    place, limits = _place(error["loc"]), error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return _unknown(model, tool, error["loc"])
        case "missing":
            return f"{place} is missing"
        case "greater_than_equal":
            return f"{place} must be at least {limits['ge']:g}"
        case "less_than_equal":
            return f"{place} must be at most {limits['le']:g}"
        case "literal_error" | "enum":
            return f"{place} must be one of {limits['expected']}"
        case kind if kind in _WANTED:
            text = "text or " if error is not errors[0] and _place(errors[0]["loc"]) == place else ""
            return f"{place} must be {text}{_WANTED[kind]}"
        case kind:
            return f"{place} is not valid ({kind.replace('_', ' ')})"


def _says_not_text(error: ErrorDetails) -> bool:
    return error["type"] == "string_type" and error["loc"][-1:] == ("str",)


def _place(location: Sequence[str | int]) -> str:
    """`memories[0].kind`, without the names that pydantic gives the branches of a union."""
    place = ""
    for part in location:
        if isinstance(part, int):
            place += f"[{part}]"
        elif not (part == "str" or "[" in part or part[:1].isupper()):
            place += f".{part}" if place else part
    return place


def _unknown(model: type[BaseModel], tool: str, location: Sequence[str | int]) -> str:
    name = " ".join(str(location[-1]).split())[:_NAME_SHOWN]
    place = _place(location[:-1])
    fields = ", ".join(_model_at(model, location[:-1]).model_fields)
    if not place:
        return f"unknown argument {name!r} of {tool}; it takes {fields}"
    return f"unknown field {name!r} in {place}; it takes {fields}"


def _model_at(model: type[BaseModel], location: Sequence[str | int]) -> type[BaseModel]:
    for part in location:
        field = model.model_fields.get(str(part))
        if field is not None:
            model = next(_models_in(field.annotation), model)
    return model


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in get_args(annotation):
        yield from _models_in(each)

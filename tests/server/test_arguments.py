"""Arguments are taken as they were written, or refused in one sentence that names the argument and the mend."""

import math

import pytest

from middleout_mcp.errors import InvalidInput
from middleout_mcp.memory.contract import CompressIn, ForgetIn, RecallIn, RememberIn
from middleout_mcp.server.arguments import parse_request

LOOKS_LIKE_JSON = ["123", '{"a":1}', '["x"]', "null", "true", '"quoted"', "1e5", " [1, 2] "]


@pytest.mark.parametrize("text", LOOKS_LIKE_JSON)
def test_text_that_looks_like_json_arrives_verbatim(text):
    assert parse_request(RecallIn, "recall", {"query": text}).query == text
    turn = {"role": "user", "text": text}
    remembered = parse_request(RememberIn, "remember", {"memories": [text, {"text": text}], "messages": [turn]})
    assert remembered.memories[0] == text
    assert remembered.memories[1].text == text
    assert remembered.messages[0].text == text
    assert parse_request(CompressIn, "compress", {"target": text}).target == text


def test_a_list_sent_as_a_string_of_json_is_read_where_text_would_be_wrong():
    request = parse_request(RememberIn, "remember", {"memories": '["one", {"text": "two"}]', "used": '["m_1"]'})
    assert request.memories[0] == "one"
    assert request.memories[1].text == "two"
    assert request.used == ["m_1"]


def test_null_means_left_out():
    request = parse_request(RecallIn, "recall", {"query": None, "limit": None, "max_tokens": None})
    assert (request.query, request.limit, request.max_tokens) == (None, 8, 2000)


def test_half_surrogate_pairs_become_replacement_characters_and_whole_ones_stay():
    request = parse_request(RememberIn, "remember", {"memories": ["cut \ud83d", "joined \ud83d\ude00", "\U0001f600"]})
    assert request.memories == ["cut \ufffd", "joined \U0001f600", "\U0001f600"]


@pytest.mark.parametrize(
    ("model", "arguments", "sentence"),
    [
        (RecallIn, {"limit": 0}, "limit must be at least 1"),
        (RecallIn, {"limit": -5}, "limit must be at least 1"),
        (RecallIn, {"limit": 10**9}, "limit must be at most 1000"),
        (RecallIn, {"limit": "many"}, "limit must be a whole number"),
        (RecallIn, {"limit": 1.5}, "limit must be a whole number"),
        (RecallIn, {"tags": "one"}, "tags must be a list"),
        (RecallIn, {"query": 5}, "query must be text"),
        (RecallIn, {"querry": "x"}, "unknown argument 'querry' of tool; it takes query, limit, kinds, "),
        (RecallIn, {"include": ["all"]}, "include[0] must be one of 'archived', 'expired', "),
        (ForgetIn, {"action": "kill"}, "action must be one of 'suppress', "),
        (CompressIn, {"target": 5}, "target must be text or a list"),
        (CompressIn, {"target": [5]}, "target[0] must be text"),
        (CompressIn, {"dry_run": "maybe"}, "dry_run must be true or false"),
        (CompressIn, {"summaries": [{"cluster": "c"}]}, "summaries[0].text is missing"),
        (RememberIn, {"memories": "one"}, "memories must be a list"),
        (RememberIn, {"memories": [5]}, "memories[0] must be text or an object"),
        (RememberIn, {"memories": ["a", {"txt": "b"}]}, "unknown field 'txt' in memories[1]; it takes text, id, "),
        (RememberIn, {"memories": [{"confidence": 2}]}, "memories[0].confidence must be at most 1"),
        (RememberIn, {"memories": [{"confidence": math.nan}]}, "memories[0].confidence must be a finite number"),
        (RememberIn, {"messages": [{"role": "user"}]}, "messages[0].text is missing"),
        (RememberIn, {"messages": ["hello"]}, "messages[0] must be an object"),
        (RememberIn, {"messages": [{"role": "u", "text": "t", "who": 1}]}, "unknown field 'who' in messages[0]; it "),
    ],
)
def test_a_wrong_argument_is_refused_in_one_sentence_that_names_it(model, arguments, sentence):
    with pytest.raises(InvalidInput) as refused:
        parse_request(model, "tool", arguments)
    assert str(refused.value).startswith(sentence)
    assert "\n" not in str(refused.value)
    assert "pydantic" not in str(refused.value)


def test_a_refusal_repeats_no_value():
    with pytest.raises(InvalidInput) as refused:
        parse_request(RememberIn, "remember", {"memories": [{"text": "my secret", "kind": {"deep": "my secret"}}]})
    assert str(refused.value) == "memories[0].kind must be text"
    with pytest.raises(InvalidInput) as refused:
        parse_request(RecallIn, "recall", {"a\nb" + "c" * 500: 1})
    assert len(str(refused.value)) < 300

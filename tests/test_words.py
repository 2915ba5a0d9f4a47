"""Words: sentences, terms, names, numbers, denials, fillers, and the line of a stretch."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from middleout_mcp.budget import count_tokens, sentence_ends
from middleout_mcp.words import (
    STOP_WORDS,
    cjk_bigrams,
    episode_line,
    fold,
    has_negation,
    is_substantive,
    names,
    numbers,
    sentences,
    terms,
)

any_text = st.text(st.characters(codec=None, exclude_categories=()))
pieces = st.sampled_from(
    [
        "Ada",
        "met Bob.",
        "Why?",
        "東京へ",
        "很好。",
        "e.g.",
        "\n",
        "```",
        "- ",
        "v2.3.1",
        "user_id",
        "don't",
        "8 May 2023",
        "…",
        "OK",
    ]
)
texts = any_text | st.lists(pieces).map(" ".join)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("Hello there. How are you?", ["Hello there.", "How are you?"]),
        ("Dr. Smith paid $3.50. He is 25. Ok", ["Dr. Smith paid $3.50.", "He is 25.", "Ok"]),
        ("We met at 5 p.m. on Jan. 5 in the U.S. office.", ["We met at 5 p.m. on Jan. 5 in the U.S. office."]),
        ("Wait... what? Really?!", ["Wait... what?", "Really?!"]),
        ("See https://a.example/b.c?d=e. Then go.", ["See https://a.example/b.c?d=e.", "Then go."]),
        ("i went home. it was late", ["i went home.", "it was late"]),
        ('She said "Stop." Then left.', ['She said "Stop."', "Then left."]),
        ("我去了东京。很好！真的？是的", ["我去了东京。", "很好！", "真的？", "是的"]),
        (
            "Plan:\n- buy milk\n- call Bob\n1. first\n2. second",
            ["Plan:", "buy milk", "call Bob", "1. first", "2. second"],
        ),
        ("# Title\ntext", ["Title", "text"]),
        ("Run:\n```sh\nls -a. b\ncd x\n```\nDone. Good.", ["Run:", "ls -a. b", "cd x", "Done.", "Good."]),
        ("```inline``` stays. Yes.", ["```inline``` stays.", "Yes."]),
    ],
)
def test_sentences_are_told_apart(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_a_wrapped_line_goes_on_and_a_short_line_does_not() -> None:
    wrapped = "This line is long enough to have been wrapped by an editor somewhere\nand goes on here. Next."
    assert len(sentences(wrapped)) == 2
    assert sentences("short line\nanother one") == ["short line", "another one"]


@given(texts)
def test_sentences_stand_in_the_text_in_order_and_lose_no_word(text: str) -> None:
    position = 0
    for sentence in sentences(text):
        position = text.index(sentence, position) + len(sentence)
    assert sorted(set(sentence_ends(text))) == list(sentence_ends(text))
    if "```" not in text and "~~~" not in text:
        assert [term for sentence in sentences(text) for term in terms(sentence)] == terms(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Where does the user live?", ["user", "live"]),
        ("get_user", ["get_user", "get", "user"]),
        ("getUserName", ["getusername", "get", "user", "name"]),
        ("HTTPServer", ["httpserver", "http", "server"]),
        ("src/app/main.py", ["src/app/main.py", "src", "app", "main", "py"]),
        ("v2.3.1", ["v2.3.1", "v2"]),
        ("E1234", ["e1234"]),
        ("1,000 at 10:30", ["1,000", "10:30"]),
        ("Alice's and O’Brien", ["alice", "o'brien", "brien"]),
        ("don't won't I'm it’s", []),
        ("well-known", ["well-known", "well", "known"]),
        ("ada@example.com", ["ada@example.com", "ada", "example", "com"]),
        ("__init__", ["init"]),
        ("Café CAFE\u0301", ["café", "café"]),
        ("我去了Tokyo塔", ["我去", "去了", "tokyo", "塔"]),
        ('"a" AND (b OR c*) NEAR/2', ["b", "c", "near/2", "near"]),
        ("!?… 👍 --", []),
    ],
)
def test_terms_are_words_numbers_identifiers_and_bigrams(text: str, expected: list[str]) -> None:
    assert terms(text) == expected


def test_a_very_long_compound_is_searched_by_its_parts_alone() -> None:
    assert terms("/".join(["alpha"] * 100)) == ["alpha"] * 100


@given(texts)
def test_terms_are_lower_case_and_never_empty_or_stop_words(text: str) -> None:
    for term in terms(text):
        assert term
        assert term == term.lower()
        assert term not in STOP_WORDS


@given(texts)
def test_terms_do_not_depend_on_how_letters_are_composed(text: str) -> None:
    assert terms(unicodedata.normalize("NFD", text)) == terms(unicodedata.normalize("NFC", text))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京へ行く", ["東京", "京へ", "へ行", "行く"]),
        ("猫", ["猫"]),
        ("서울에서 만나", ["서울", "울에", "에서", "만나"]),
        ("a 你好, 世界 b", ["你好", "世界"]),
        ("𠀀𠀁", ["𠀀𠀁"]),
        ("latin", []),
    ],
)
def test_cjk_text_is_cut_into_pairs(text: str, expected: list[str]) -> None:
    assert cjk_bigrams(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Caroline went to New York with Bob.", ["Caroline", "New York", "Bob"]),
        ("New York is big.", ["New York"]),
        ("I met Dr. Jane O'Neil and J.K. Rowling.", ["Dr. Jane O'Neil", "J.K. Rowling"]),
        ("She studies at the University of Oxford", ["University of Oxford"]),
        ("Going home. The car broke. Yesterday it rained. Thanks!", []),
        ("We talk on Monday in May.", []),
        ("It was Alice’s idea, not Bob's.", ["Alice", "Bob"]),
        ("Use the GitHub API", ["GitHub API"]),
        ("Reading is fun. I like Reading, the town.", ["Reading"]),
        ("去了Tokyo塔", ["Tokyo"]),
        ("WHY ARE YOU SHOUTING", []),
        ("", []),
    ],
)
def test_names_are_capitals_that_do_not_only_begin_a_sentence(text: str, expected: list[str]) -> None:
    assert names(text) == expected


@given(texts)
def test_names_stand_in_the_text_once_each_and_no_text_breaks_the_reading_of_numbers(text: str) -> None:
    assert all(isinstance(number, str) for number in numbers(text))
    found = names(text)
    assert len(set(found)) == len(found)
    assert all(name in text for name in found)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("on 8 May, 2023 at 1:56 pm", ["8 May, 2023", "1:56 pm"]),
        ("May 8th, 2023 or May 2023", ["May 8th, 2023", "May 2023"]),
        ("2023-05-08T10:00:00Z", ["2023-05-08T10:00:00Z"]),
        ("$3,500.50 or €20 or 3 million", ["$3,500.50", "€20", "3"]),
        ("v2.3.1 and 3.11 and 50%", ["v2.3.1", "3.11", "50%"]),
        ("by Friday, 9am, room 12", ["Friday", "9am", "12"]),
        ("-5 to +7, 10-15, 2/3", ["-5", "+7", "10-15", "2/3"]),
        ("2023年5月8日", ["2023", "5", "8"]),
        ("E1234 may not", []),
    ],
)
def test_numbers_are_found_as_they_are_written(text: str, expected: list[str]) -> None:
    assert numbers(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("I do not eat meat", "I don't", "I don’t", "never", "without sugar", "dont", "ich mag kein Fleisch", "no sé"),
        *("我不吃肉", "食べない"),
    ],
)
def test_a_denial_is_noticed(text: str) -> None:
    assert has_negation(text)


@pytest.mark.parametrize("text", ["I eat meat", "a knot in my notebook", "", "8 Mai 2023", "nothings", "我吃肉"])
def test_what_denies_nothing_is_no_denial(text: str) -> None:
    assert not has_negation(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "ok",
            "thanks!",
            "Haha yes",
            "Hi! How are you?",
            "no",
            "Yes.",
            "heyyy",
            "hahahahaha",
            "👍",
            "...",
            "",
            " \n",
            "\x00",
        ),
        *(
            "Hey Mel! Good to see you!",
            "Thank you so much, Caroline!",
            "Good morning Dr Watson",
            "sounds good, see you later",
        ),
        *("Danke", "¡Hola!", "merci", "谢谢！", "你好", "ありがとうございます", "안녕하세요", "Привет"),
    ],
)
def test_greetings_thanks_and_fillers_are_not_substantive(text: str) -> None:
    assert not is_substantive(text)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "blue",
            "at 4",
            "test",
            "temp",
            "tmp file",
            "4",
            "Bob",
            "I moved",
            "Yes, Paris",
            "no, Tuesday",
            "hi, the build fails",
        ),
        *("thanks for the blue one", "not yet", "I'm good at chess", "猫", "你好，我搬家了", "ok " * 100),
    ],
)
def test_short_texts_with_content_are_substantive(text: str) -> None:
    assert is_substantive(text)


@given(texts)
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


@given(texts)
def test_folding_forgets_composition_and_spacing(text: str) -> None:
    assert fold(unicodedata.normalize("NFD", text)) == fold(text)
    assert fold(f"  {text}\n") == fold(text)


def test_folded_texts_are_equal_when_a_reader_would_say_so() -> None:
    assert fold("Straße  in\nKÖLN") == fold("STRASSE in ko\u0308ln")
    assert fold("blue") != fold("red")


turns = st.lists(st.tuples(st.sampled_from(["user", "assistant", "Ada", "Bob  B", ""]) | any_text, texts), max_size=8)


@given(turns)
def test_a_line_keeps_to_its_limits_and_uses_only_words_of_the_stretch(stretch: list[tuple[str, str]]) -> None:
    line = episode_line(stretch)
    assert len(line.split()) <= 24
    assert count_tokens(line) <= 40
    assert len(line.splitlines()) <= 1
    assert bool(line) == any(sentences(text) for _, text in stretch)
    if "…" not in line:
        assert set(terms(line)) <= set(terms(" ".join(f"{speaker} | {text}" for speaker, text in stretch)))


def test_a_line_tells_what_it_was_about_and_how_it_ended() -> None:
    stretch = [
        ("user", "Hi! How are you?"),
        ("user", "We need to choose a database for the Atlas project. I was thinking of Postgres or SQLite."),
        ("assistant", "SQLite is simpler to ship."),
        ("user", "Okay, decided: we use SQLite 3.45 and ship on 12 June."),
    ]
    line = episode_line(stretch)
    assert all(word in line for word in ("Atlas", "Postgres", "SQLite 3.45", "12 June"))
    assert "user" not in line
    assert "Hi" not in line


def test_a_line_names_who_said_what_and_drops_greetings() -> None:
    stretch = [
        ("Caroline", "Hey Mel! Good to see you!"),
        ("Caroline", "I went to a support group yesterday and it was so powerful."),
        ("Melanie", "Wow! I ran a charity race for mental health last Saturday."),
    ]
    line = episode_line(stretch)
    assert line.startswith("Caroline: ")
    assert "Melanie: " in line
    assert "charity race" in line
    assert "Hey" not in line


def test_a_stretch_of_greetings_gets_the_first_of_them_and_an_empty_one_nothing() -> None:
    assert episode_line([("user", "hi"), ("assistant", "hello")]) == "hi"
    assert episode_line([("user", "  ")]) == ""
    assert episode_line([]) == ""


def test_a_line_in_chinese_is_cut_at_its_own_marks() -> None:
    assert episode_line([("user", "我们决定用SQLite，六月十二日发布。")]) == "我们决定用SQLite; 六月十二日发布"


HARD = [
    ". ",
    ".",
    "\n",
    " ",
    "a",
    "A",
    "Aa",
    "A ",
    "é",
    "漢",
    "1. ",
    "a.a_",
    "a...",
    "1,",
    "1-",
    "$1",
    "`",
    "```\n",
    "- ",
    "ok ",
]
HARD += [
    "how are you ",
    "n't",
    "of ",
    "A of ",
    "1:1",
    "May ",
    "1 of ",
    "'",
    "\ud800",
    "e\u0301",
    "Aing ",
    "(",
    "a;",
    "? ",
]


@pytest.mark.parametrize("unit", HARD, ids=ascii)
def test_monotonous_texts_are_read_to_their_end(unit: str) -> None:
    text = unit * (30_000 // len(unit)) + "x"  # quadratic patterns would need minutes for all of these
    for read in (sentences, terms, names, numbers, has_negation, is_substantive, fold, cjk_bigrams, count_tokens):
        read(text)
    episode_line([("user", text), ("user", text)])

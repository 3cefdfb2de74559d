"""Tests of retrieval/index.py and the table below it."""

from __future__ import annotations

import random
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillhouse.discovery import discover
from skillhouse.floor import SkillhouseError
from skillhouse.retrieval import (
    FIELDS,
    Document,
    HeadIndex,
    Hit,
    SearchError,
    SearchIndex,
    is_weak,
    rank,
)
from skillhouse.retrieval.index import CANDIDATES_MAX, PINS_MAX
from skillhouse.retrieval.segment_store import BODY_CHARS_MAX
from skillhouse.retrieval.tokens import open_stemmer, stems_of
from skillhouse.skill import Skill, SkillIndex

LIBRARY: list[Document] = [
    ("user:pdf-tools", "pdf-tools", "Merge, split and rotate documents", "Run `qpdf`."),
    ("user:charts", "charts", "Draws diagrams from tables", "Reads a PDF or a spreadsheet."),
    ("user:data", "data", "数据分析和可视化，用Python画图", "步骤：读取表格。"),
    ("user:weather", "weather", "Tells the weather forecast of a city", "Asks wttr.in."),
    ("user:how-to", "how-to", "Explains things", ""),
]

ANY_TEXT = st.text(st.characters())
DOCUMENTS = st.lists(st.tuples(st.sampled_from("abc"), ANY_TEXT, ANY_TEXT, ANY_TEXT), max_size=6)


@pytest.fixture(scope="module")
def library() -> SearchIndex:
    return SearchIndex.from_documents(LIBRARY)


def found(index: SearchIndex, query: str, *, limit: int = 5) -> list[str]:
    return [hit.id for hit in index.search(query, limit=limit)]


@pytest.mark.req("S003-37", "S003-44", "S003-45")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("merging documents", ["user:pdf-tools"]),
        ("MERGED DOCUMENT", ["user:pdf-tools"]),
        ("What's the weather in Tokyo?", ["user:weather"]),
        ("数据分析", ["user:data"]),
        ("帮我做数据分析", ["user:data"]),
        ("可视化", ["user:data"]),
        ("PYTHON", ["user:data"]),
        ("用Python画图", ["user:data", "user:charts"]),
        ("读取", ["user:data", "user:charts"]),
        ("据", []),
        ("天气", ["user:weather"]),
        ("Wetter", ["user:weather"]),
        ("météo", ["user:weather"]),
        ("quel temps fera-t-il, la météo à Paris", ["user:weather"]),
        ("el clima de mañana", ["user:weather"]),
        ("погода завтра", ["user:weather"]),
        ("天気予報", ["user:weather"]),
        ("날씨 알려줘", ["user:weather"]),
        ("data analysis", ["user:data"]),
        ("bicycle", []),
    ],
)
def test_a_query_finds_the_skills_with_its_words(library, query, expected):
    assert found(library, query) == expected


@pytest.mark.req("S003-38")
def test_a_match_in_the_name_counts_more_than_in_the_description_and_that_more_than_in_the_body():
    index = SearchIndex.from_documents(
        [
            ("1", "paper", "paper paper", "paper kite paper"),
            ("2", "paper", "paper kite", "paper paper paper"),
            ("3", "kite flying", "paper paper", "paper paper"),
            ("4", "paper", "paper", "paper"),
        ]
    )
    hits = index.search("kite")
    assert [hit.id for hit in hits] == ["3", "2", "1"]
    assert [hit.fields for hit in hits] == [("name",), ("description",), ("body",)]
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_a_hit_says_which_fields_matched_and_whether_it_was_named(library):
    [first, second] = library.search("pdf tools")
    assert first == Hit(
        id="user:pdf-tools",
        name="pdf-tools",
        score=first.score,
        fields=("name",),
        exact=True,
        confidence=1.0,
        matches={"name": ("pdf", "tools")},
    )
    assert second == Hit(
        id="user:charts",
        name="charts",
        score=second.score,
        fields=("body",),
        confidence=second.confidence,
        matches={"body": ("pdf",)},
    )


def test_the_fields_of_many_hits_are_those_of_few():
    index = SearchIndex.from_documents(
        [(f"{n:02}", "kite" if n % 2 else "x", "kite" if n % 3 else "x", "kite") for n in range(30)]
    )
    many = index.search("kite", limit=30)
    assert len(many) == 30
    assert index.search("kite", limit=3) == many[:3]
    assert {hit.id: hit.fields for hit in many} == {
        f"{n:02}": tuple(f for f, has in zip(FIELDS, (n % 2, n % 3, 1), strict=True) if has)
        for n in range(30)
    }


@pytest.mark.parametrize(
    "query",
    ["pdf-tools", "PDF Tools", "pdf_tools", " pdf-tools ", "user:pdf-tools", "USER:pdf tools"],
)
def test_a_skill_that_is_named_comes_first(query):
    rival = ("user:a", "pdf pdf", "tools tools pdf tools user", "pdf tools " * 50)
    index = SearchIndex.from_documents([rival, *LIBRARY])
    [first, second, *_] = index.search(query)
    assert (first.id, first.exact) == ("user:pdf-tools", True)
    assert (second.id, second.exact) == ("user:a", False)
    assert first.score >= second.score
    assert found(index, query, limit=1) == ["user:pdf-tools"]


def test_a_skill_that_is_named_by_signs_alone_is_found():
    index = SearchIndex.from_documents([("user:🎉", "🎉", "Parties", "")])
    assert index.search("🎉") == [
        Hit(id="user:🎉", name="🎉", score=0.0, exact=True, confidence=1.0)
    ]


@pytest.mark.req("S003-39", "S003-40", "S003-41")
def test_at_most_as_many_hits_as_asked_for_are_given(library):
    query = "pdf weather data"
    assert len(library.search(query)) == 4
    counts = {limit: len(library.search(query, limit=limit)) for limit in (-5, 0, 1, 2, 10**30)}
    assert counts == {-5: 0, 0: 0, 1: 1, 2: 2, 10**30: 4}


@pytest.mark.req("S003-35")
def test_five_hits_are_given_unless_told_otherwise():
    index = SearchIndex.from_documents((str(n), "kite", "", "") for n in range(9))
    assert found(index, "kite") == ["0", "1", "2", "3", "4"]


@pytest.mark.req("S003-48")
@pytest.mark.parametrize("query", ["", "   ", "?!…", "\0", "\ud800", "🎉"])
def test_a_query_without_a_letter_or_digit_finds_nothing(library, query):
    assert library.search(query) == []


def test_a_query_of_stop_words_alone_is_looked_for_in_names_and_descriptions(library):
    assert found(library, "to the") == ["user:how-to", "user:weather"]


PDF = ["user:charts", "user:pdf-tools"]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"', []),
        ("\\", []),
        ('" OR "', []),
        ('pdf" OR name : "weather', [*PDF, "user:weather"]),
        ("'; DROP TABLE words; --", ["user:charts"]),
        ("weath* fore*", ["user:weather"]),
        ("^forecast", ["user:weather"]),
        ("name : pdf", PDF),
        ("{name description} : pdf", PDF),
        ("- name : pdf", PDF),
        ("NOT pdf", PDF),
        ("weather NOT city", ["user:weather"]),
        ("pdf AND weather", [*PDF, "user:weather"]),
        ("pdf + weather", [*PDF, "user:weather"]),
        ("NEAR(pdf weather, 1)", [*PDF, "user:weather"]),
        ("(pdf", PDF),
        ("pdf)", PDF),
        ("pdf\0weather", [*PDF, "user:weather"]),
        ("\0pdf", PDF),
        ("pdf \ud800", PDF),
        ("%df_", []),
        ("rowid : 1", []),
        ("rank optimize words", []),
        ("\U0001e4d0 pdf", PDF),
        ("\u0300pdf", PDF),
    ],
)
def test_a_query_has_no_syntax(library, query, expected):
    assert sorted(found(library, query)) == expected


@pytest.mark.parametrize("query", ["pdf " * 2_500, "x" * 10_000 + " pdf", "数" * 10_000 + " pdf"])
def test_a_query_of_ten_kilobytes_is_answered(library, query):
    assert found(library, query) == ["user:pdf-tools", "user:charts"]


def test_an_empty_index_finds_nothing():
    index = SearchIndex.from_documents([])
    assert (len(index), index.search("pdf"), index.search("")) == (0, [], [])


@pytest.mark.parametrize("count", [1, 2, 3, 50])
def test_a_word_that_all_skills_have_still_counts(count):
    index = SearchIndex.from_documents((str(n), "pdf", "", "") for n in range(count))
    assert all(hit.score > 0.01 for hit in index.search("a pdf"))


def test_equal_scores_are_ordered_by_id_whatever_the_order_of_the_documents():
    documents = [(f"{number}", "kite", "flies", "") for number in range(20)]
    random.Random(7).shuffle(documents)
    ids = found(SearchIndex.from_documents(documents), "kite", limit=12)
    assert ids == sorted(str(number) for number in range(20))[:12]


def test_skills_of_one_id_are_all_found():
    index = SearchIndex.from_documents(
        [("same", "b", "kite", ""), ("same", "a", "kite", ""), ("same", "a", "kite", "")]
    )
    assert [(hit.id, hit.name) for hit in index.search("kite")] == [
        ("same", "a"),
        ("same", "a"),
        ("same", "b"),
    ]
    assert [hit.exact for hit in index.search("same")] == [True, True, True]


def test_the_start_of_a_body_is_searched_and_the_rest_is_not():
    body = "early " + "x" * (BODY_CHARS_MAX - len("early ") - len(" early2")) + " early2 late"
    index = SearchIndex.from_documents([("1", "n", "", body)])
    assert [bool(index.search(word)) for word in ("early", "early2", "late")] == [True, True, False]


def test_a_body_is_indexed_without_stop_words():
    index = SearchIndex.from_documents([("1", "n", "", "The cat and THE hat")])
    assert [bool(index.search(word)) for word in ("the", "and", "cat", "HAT")] == [
        False,
        False,
        True,
        True,
    ]


def test_pairs_of_characters_survive_the_stemmer():
    given = ["running", "数据", "タを", "국어", "图", "files", "café"]
    assert [*stems_of(given).values()] == [
        (stem,) for stem in ("run", "数据", "タを", "국어", "图", "file", "cafe")
    ]


def test_sqlite_without_full_text_search_is_a_clear_error():
    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(":memory:")
        connection.set_authorizer(
            lambda action, *_: (
                sqlite3.SQLITE_DENY if action == sqlite3.SQLITE_CREATE_VTABLE else sqlite3.SQLITE_OK
            )
        )
        return connection

    with pytest.raises(SearchError, match="search needs SQLite") as caught:
        open_stemmer(connect)
    assert isinstance(caught.value, SkillhouseError)
    assert caught.value.sqlite_version == sqlite3.sqlite_version


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("wether forecast", "user:weather"),
        ("waether", "user:weather"),
        ("forcasst of a city", "user:weather"),
        ("spreadshet", "user:charts"),
        ("documnets", "user:pdf-tools"),
    ],
)
def test_a_misspelt_word_finds_what_was_meant(library, query, first):
    assert library.search(query)[0].id == first


@pytest.mark.parametrize("query", ["pdf-m", "pdf-me", "PDF-", "user:pdf-mer", "pdfm"])
def test_skills_whose_name_begins_with_the_query_come_first(query):
    index = SearchIndex.from_documents(
        [
            ("user:pdf-merge", "pdf-merge", "Joins documents.", ""),
            ("user:pdfmaker", "pdfmaker", "Prints documents.", ""),
            ("user:me", "about-me", "Who me is: pdf, m, me, mer and me again, a PDF of me.", ""),
        ]
    )
    best = index.search(query)[0]
    assert best.name == ("pdfmaker" if query == "pdfm" else "pdf-merge")
    assert not best.exact


def test_a_word_pins_names_that_begin_with_it_as_a_word_alone():
    documents = [
        ("user:art", "art-history", "Explains paintings.", ""),
        ("user:articles", "articles", "Writes about art, art and more art.", ""),
        ("user:stub", "art-helper", "Use when this capability is needed.", ""),
    ]
    found = [hit.name for hit in SearchIndex.from_documents(documents).search("art")]
    assert found == ["art-history", "articles", "art-helper"]


@pytest.mark.parametrize(("number", "is_pinned"), [(PINS_MAX, True), (PINS_MAX + 1, False)])
def test_the_beginning_of_many_names_is_a_common_word(number, is_pinned):
    begun = [(f"user:chart-{at}", f"chart-{at}", "Prints.", "") for at in range(number)]
    about = ("user:zeal", "zeal", "A chart: chart, chart.", "chart " * 9)
    found = SearchIndex.from_documents([*begun, about]).search("chart-", limit=number + 1)
    assert len(found) == number + 1
    assert found[-1 if is_pinned else 0].name == "zeal"


def test_the_beginning_of_an_id_pins_no_name():
    index = SearchIndex.from_documents([("user:bat:c", "c", "Reads.", "")])
    assert index.search("user:b") == []
    assert index.search("user:bat:c")[0].exact


def test_a_query_without_letters_is_no_name_of_signs_alone():
    index = SearchIndex.from_documents([("user:-", "--", "Prints dashes.", "")])
    assert index.search("-") == index.search("--") == []


@pytest.mark.parametrize("misspelt", ["implementaion", "implmenting", "impelemnted"])
def test_a_misspelt_ending_does_not_matter(misspelt):
    skill = ("user:plan", "plan", "Implementation of plans: implementing what is implemented", "")
    index = SearchIndex.from_documents([skill, ("user:other", "other", "Paints walls", "")])
    assert [hit.id for hit in index.search(misspelt)] == ["user:plan"]


def test_words_of_another_language_are_not_corrected():
    index = SearchIndex.from_documents([("user:kitchen", "kitchen", "Designs a kitchen", "")])
    assert index.search("the kitchn")
    assert index.search("die kitchn für mich") == []


@pytest.mark.parametrize("query", ["pfd", "cty", "xwether7", "zzzzzzzz"])
def test_short_words_numbers_and_words_like_no_other_are_not_corrected(library, query):
    assert library.search(query) == []


def test_words_that_follow_each_other_in_the_query_count_more_where_they_do_in_the_description():
    index = SearchIndex.from_documents(
        [
            ("1", "one", "Review of plans, and code that is written by hand", ""),
            ("2", "two", "By hand, plans that are written and a code review", ""),
        ]
    )
    assert found(index, "a code review") == ["2", "1"]


def test_a_word_of_a_short_name_counts_more_than_one_of_a_long_name():
    index = SearchIndex.from_documents(
        [("1", "pdf-chart-table-kit", "Works on files", ""), ("2", "pdf", "Works on files", "")]
    )
    assert found(index, "my pdf") == ["2", "1"]


def test_a_query_of_common_words_beyond_the_budget_still_orders_its_candidates(monkeypatch):
    documents = [
        (f"{n:04}", "rare" if n == 700 else "x", "common words", "usual " * (n % 3))
        for n in range(1_000)
    ]
    index = SearchIndex.from_documents(documents)
    expected = index.search("rare common usual", limit=5)
    monkeypatch.setattr(rank, "POSTINGS_MAX", 1)
    assert found(index, "rare common usual")[0] == expected[0].id == "0700"
    assert len(index.search("rare common usual", limit=5)) == 5


def test_skills_of_one_name_or_one_text_are_one_hit_that_names_the_others():
    index = SearchIndex.from_documents(
        [
            (
                "a:kite",
                "kite",
                "Flies a kite on a windy day, and on a day with little wind, high up",
                "",
            ),
            ("b:kite", "Kite", "Another kind of kite", ""),
            (
                "c:copy",
                "copy",
                "Flies a kite on a windy day, and on a day with little wind, high up",
                "",
            ),
            ("d:lamp", "lamp", "Not a kite", ""),
        ]
    )
    hits = index.search("flies a kite", collapse=True)
    assert [(hit.id, set(hit.alike)) for hit in hits] == [
        ("a:kite", {"b:kite", "c:copy"}),
        ("d:lamp", set()),
    ]
    assert len(index.search("flies a kite")) == 4
    assert [hit.id for hit in index.search("flies a kite", limit=1, collapse=True)] == ["a:kite"]


def test_a_request_that_nothing_fits_has_weak_hits_alone(library):
    fits, nothing = (
        library.search(query)
        for query in ("weather forecast", "which wine goes with duck, and forecast a dinner")
    )
    assert (is_weak(fits), is_weak(nothing), is_weak([])) == (False, True, False)
    assert nothing[0].matches == {"description": ("forecast",)}


@pytest.mark.parametrize("query", ["wether", "waether forecast"])
def test_a_corrected_word_is_named_as_the_skill_has_it(library, query):
    assert f"weather ({query.split()[0]})" in library.search(query)[0].matches["name"]


@pytest.mark.slow
def test_several_threads_may_ask_one_index(library):
    queries = ["pdf", "weather", "数据", "how to"] * 25
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(library.search, queries)) == [library.search(q) for q in queries]


def test_skills_are_indexed_with_their_bodies_and_shadowed_ones_are_not(tmp_path):
    for place, body in (
        ("a/kites", "Needs wind."),
        ("b/kites", "Needs rain."),
        ("a/gone", "Wind."),
    ):
        (tmp_path / place).mkdir(parents=True)
        head = f"---\nname: {place[2:]}\ndescription: About {place[2:]}.\n---\n"
        (tmp_path / place / "SKILL.md").write_text(head + body, "utf-8")
    skills = discover([tmp_path / "a", tmp_path / "b"])
    assert (len(skills.skills), len(skills.shadowed)) == (2, 1)
    (tmp_path / "a/gone/SKILL.md").unlink()
    index = SearchIndex.from_skills(skills)
    assert found(index, "wind") == ["explicit:kites"]
    assert found(index, "rain") == []
    assert found(index, "gone about") == ["explicit:gone", "explicit:kites"]


@pytest.mark.slow
@given(DOCUMENTS, ANY_TEXT, st.integers(-2, 9))
def test_any_query_is_answered_with_skills_of_the_index_best_first(documents, query, limit):
    index = SearchIndex.from_documents(documents)
    hits = index.search(query, limit=limit)
    assert len(hits) <= max(0, limit)
    heads = [(document[0], document[1]) for document in documents]
    for hit in hits:
        heads.remove((hit.id, hit.name))
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.exact or hit.fields for hit in hits)
    assert hits == index.search(query, limit=limit)
    assert hits == SearchIndex.from_documents(reversed(documents)).search(query, limit=limit)


@pytest.mark.slow
@given(st.lists(ANY_TEXT, min_size=1, max_size=4, unique=True), st.data())
def test_every_skill_is_found_first_by_its_name(names, data):
    index = SearchIndex.from_documents((f"id{n}", name, "", "") for n, name in enumerate(names))
    name = data.draw(st.sampled_from(names))
    hits = index.search(name, limit=len(names))
    if hits:
        assert hits[0].exact


HEAD_WORDS = (
    "happy happily PDFs merging merge café 数据分析 天気 が国 useEffect relational data".split()
)
HEAD_TEXTS = st.lists(st.sampled_from(HEAD_WORDS), max_size=6).map(" ".join)


def skill(name: str, description: str) -> Skill:
    return Skill(
        name=name,
        description=description,
        scope="user",
        file=f"/s/{name}/SKILL.md",
        root="/s",
        packed_fields=b"",
    )


@pytest.mark.slow
@given(st.lists(HEAD_TEXTS, max_size=6), HEAD_TEXTS)
def test_skills_are_found_that_an_index_of_the_same_texts_finds(texts, query):
    index = SkillIndex([skill(f"s{number}", text) for number, text in enumerate(texts)])
    whole = SearchIndex.from_documents((s.id, s.name, s.description, "") for s in index.skills)
    found, expected = (each.search(query, limit=9) for each in (HeadIndex(index), whole))
    assert {hit.id for hit in found} == {hit.id for hit in expected}


@pytest.mark.parametrize(("query", "first"), [("kite", "kite"), ("s7 words", "s7"), ("!?", None)])
def test_the_best_of_very_many_are_ranked(query, first):
    skills = [skill(f"s{number}", "common words") for number in range(CANDIDATES_MAX + 9)]
    found = HeadIndex(SkillIndex([*skills, skill("kite", "Flies")])).search(query)
    assert next((hit.name for hit in found), None) == first

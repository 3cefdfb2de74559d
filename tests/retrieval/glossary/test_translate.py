"""Tests of retrieval/glossary/translate.py and the table of terms below it."""

from __future__ import annotations

import pytest

from skillhouse.retrieval import SearchIndex
from skillhouse.retrieval.glossary.translate import LANGS, english, meanings, others

LEAST_WORDS = 600
"""Words of each language, so that a column that is lost is seen."""

SKILLS = [
    ("a:weather", "weather", "Current weather and forecasts. Tells rain and wind.", ""),
    ("a:sql", "sql-helper", "Writes and optimizes queries for a database.", ""),
    ("a:net", "net-guard", "Does intrusion detection in a network.", ""),
    ("a:ml", "trainer", "Trains models for machine learning.", ""),
    ("a:kitchen", "kitchen", "Designs a kitchen.", ""),
]


def meant(query: str) -> dict[str, set[str]]:
    return {each.text: {text for text, _ in each.senses} for each in meanings(query)}


@pytest.mark.parametrize("lang", LANGS)
def test_each_language_has_words_for_the_same_concepts(lang):
    words = english(lang)
    assert len(words) >= LEAST_WORDS
    assert all(word and all(senses) for word, senses in words.items())


def test_an_english_word_has_words_in_other_languages():
    assert {"天气", "날씨", "wetter", "погода"} <= set(others()["weather"])


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("Wettervorhersage", "a:weather"),
        ("Datenbankabfragen beschleunigen", "a:sql"),
        ("une requête de base de données", "a:sql"),
        ("optimizar consultas de la base de datos", "a:sql"),
        ("оптимизация запросов к базам данных", "a:sql"),
        ("обнаружение вторжений в сети", "a:net"),
        ("détection d'intrusion sur mon réseau", "a:net"),
        ("maschinelles Lernen mit eigenen Modellen", "a:ml"),
        ("aprendizaje automático", "a:ml"),
        ("какая сегодня погода", "a:weather"),
        ("날씨 예보", "a:weather"),
    ],
)
def test_phrases_compounds_and_inflected_words_find_english_skills(query, first):
    assert SearchIndex.from_documents(SKILLS).search(query)[0].id == first


def test_a_phrase_is_one_thing_and_its_words_are_no_others():
    assert meant("obtener aprendizaje automático con datos")["aprendizaje automático"] == {
        "machine learning"
    }
    assert "aprendizaje" not in meant("obtener aprendizaje automático con datos")


def test_words_of_another_language_that_say_nothing_are_not_looked_for():
    index = SearchIndex.from_documents(SKILLS)
    with_them, without = (
        index.search(query)[0] for query in ("wie wird das Wetter bei mir", "Wetter")
    )
    assert with_them.confidence == pytest.approx(without.confidence)

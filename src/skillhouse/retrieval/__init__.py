"""Ranks skills for a request."""

from skillhouse.retrieval.index import Document, Hit, SearchIndex
from skillhouse.retrieval.searching import search
from skillhouse.retrieval.table import FIELDS, SearchError
from skillhouse.retrieval.tokens import QUERY_TERMS_MAX, name_key, query_terms, tokens

__all__ = [
    "FIELDS",
    "QUERY_TERMS_MAX",
    "Document",
    "Hit",
    "SearchError",
    "SearchIndex",
    "name_key",
    "query_terms",
    "search",
    "tokens",
]

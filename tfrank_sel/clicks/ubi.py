"""Logs of OpenSearch's User Behavior Insights (UBI)."""

import collections
import contextlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

import pyarrow as pa

from tfrank_sel.data import InputError, arrays, formats
from tfrank_sel.data.table import TEXT, format_value
from tfrank_sel.errors import received

_QUERY = ("query_id", "user_query", "query_response_hit_ids", "_source")
_EVENT = ("query_id", "action_name", "event_attributes", "_source")
# columns that tables without nested ones, such as CSV, have as texts of JSON
_NESTED = {"query_response_hit_ids": list, "event_attributes": dict}
_ITEM = ("event_attributes", "object", "object_id")
_ORDINAL = ("event_attributes", "position", "ordinal")
# of A/B tests, as the Dashboards register clicks: dashboards-search-relevance#932
_OBJECT = ("event_attributes", "object", "id")
_CONFIGURATION = ("event_attributes", "object", "search_configuration_uuid")


class _Asked:
    """A query: its text, and for each hit the first place of its page and its own, from 0."""

    def __init__(self) -> None:
        self.text: str | None = None
        self.hits: dict[str, tuple[int, int]] = {}

    def add(self, text: str | None, hits: Sequence[str]) -> None:
        """Adds a page; hits that are there were logged again."""
        self.text = self.text or text
        first = len(self.hits)
        for item in hits:
            self.hits.setdefault(item, (first, len(self.hits)))

    def place(self, item: str, ordinal: int | None, base: int) -> int | None:
        """The place of an item from 0; the ordinal, from `base`, may be that within its page."""
        first, ordinal_of_hit = self.hits.get(item, (0, None))
        if ordinal is None:
            return ordinal_of_hit
        return ordinal - base + (first if ordinal - base < first else 0)


class _Event(NamedTuple):
    session: str
    item: str
    ordinal: int | None
    is_click: bool


def read(
    queries: Sequence[str],
    events: Sequence[str],
    *,
    click: str = "click",
    impression: str = "impression",
    format: str | None = None,
) -> tuple[Any, Mapping[str, int]]:
    """Reads a log of UBI as an Arrow table.

    Columns are `session` (the `query_id`), `query` (the `user_query`), `item` (the `object_id`),
    `position` and `click`. A row is an item with an impression or a click. Without any impressions,
    all items of `query_response_hit_ids` count as shown, and no others: items outside the hits
    would be known only if they were clicked. With some, a session without any is left out, for the
    same reason. A query that is logged again has a next page. Positions from 0 are counted from 1.

    Args:
        queries: Files of `ubi_queries`: tables, which may be those of a search, with the document
            in `_source`.
        events: Files of `ubi_events`. Other actions are left out.
        click: Name of the action of a click.
        impression: Name of the action of an impression.
        format: As in `formats.dicts`.

    Returns:
        The table, and the number of rows of each kind that were left out.

    Raises:
        InputError: If a file cannot be read, or nothing is a click of a query, or most of the
            events are of queries that are not in `queries`.

    Reference:
        [UBI 1.3.0](https://github.com/o19s/ubi).
    """
    left_out: collections.Counter[str] = collections.Counter()
    asked, known = _queries(queries, format, left_out)
    actions = {click: True, impression: False}
    parsed = list(_events(events, format, actions, asked, known, left_out))
    clicks = [x for x in parsed if x.is_click]
    base = min([1, *(x.ordinal for x in parsed if x.ordinal is not None)])
    shown = _impressions([x for x in parsed if not x.is_click], asked, base, left_out)
    of_impressions = {session for session, _ in shown}
    if not of_impressions:
        shown = {(x, item): own for x, q in asked.items() for item, (_, own) in q.hits.items()}
    clicked = set[tuple[str, str]]()
    for event in clicks:
        key = (event.session, event.item)
        if of_impressions and event.session not in of_impressions:
            left_out["clicks of sessions without impressions"] += 1
            continue
        index = asked[event.session].place(event.item, event.ordinal, base)
        if of_impressions and index is not None:  # what was clicked was shown
            shown.setdefault(key, index)
        if key in shown:
            clicked.add(key)
        else:
            kind = (
                "without a position" if of_impressions else "on items that were not among the hits"
            )
            left_out[f"clicks {kind}"] += 1
    if not clicked:
        reason = f"expected an event {click!r} on an item of a query of {queries[0]}"
        received_rows = f"none; {summary_line(left_out)}" if left_out else "none"
        raise InputError(events[0], received(reason, received_rows))
    return _table(shown, clicked, asked), left_out


def ab_test_events(
    paths: Sequence[str], click: str, query: str | None, format: str | None
) -> Iterator[tuple[str, str, str, str | None]]:
    """Reads clicks on lists of an A/B test of OpenSearch's search-relevance plugin.

    Args:
        paths: Files of `ubi_events`, whose objects have a `search_configuration_uuid`. Other
            actions, and events of no A/B test, are left out.
        click: Name of the action of a click.
        query: Name of the field of the query, if there is one.
        format: As in `formats.dicts`.

    Yields:
        The session, the item, the search configuration that the item is from, and the query.

    Raises:
        InputError: If a file cannot be read, or a click has no `query_id`, item or query.
    """
    for where, record in formats.dicts(paths, (*_EVENT, *([query] if query else ())), format):
        row = _source(where, record)
        configuration = _text(where, row, *_CONFIGURATION)
        if configuration is None or arrays.text(_field(row, "action_name")) != click:
            continue
        session = _text(where, row, "query_id")
        item = _text(where, row, *_ITEM) or _text(where, row, *_OBJECT)
        if session is None or item is None:
            expected = "expected a click with a query_id, which names the search, and an item"
            raise InputError(where, received(expected, "none"))
        text = query and _text(where, row, query)
        if query and text is None:
            raise InputError(where, received(f"expected a click with {query!r}", "none"))
        yield session, item, configuration, text


def summary_line(left_out: Mapping[str, int]) -> str:
    """Returns a line of what was left out.

    Example:
        >>> summary_line({"events without an item": 2, "queries without query_id": 1})
        'left out: 2 events without an item, 1 queries without query_id'
    """
    return f"left out: {', '.join(f'{n:,} {name}' for name, n in left_out.items())}"


def _queries(
    paths: Sequence[str], format: str | None, left_out: collections.Counter[str]
) -> tuple[dict[str, _Asked], Set[str]]:
    """The queries with a text, and the identifiers of all."""
    asked: dict[str, _Asked] = {}
    for where, record in formats.dicts(paths, _QUERY, format):
        row = _source(where, record)
        if (session := _text(where, row, "query_id")) is None:
            left_out["queries without query_id"] += 1
            continue
        hits = _field(row, "query_response_hit_ids")
        texts = [arrays.text(x) for x in hits] if isinstance(hits, list) else []
        page = [x for x in texts if x and not x.startswith(arrays.INVALID)]
        asked.setdefault(session, _Asked()).add(_text(where, row, "user_query"), page)
    named = {session: query for session, query in asked.items() if query.text is not None}
    if nameless := len(asked) - len(named):
        left_out["queries without user_query"] = nameless
    return named, asked.keys()


def _events(
    paths: Sequence[str],
    format: str | None,
    actions: Mapping[str, bool],
    asked: Mapping[str, _Asked],
    known: Set[str],
    left_out: collections.Counter[str],
) -> Iterator[_Event]:
    is_known: list[bool] = []  # of the events of a query
    for where, record in formats.dicts(paths, _EVENT, format):
        row = _source(where, record)
        action = str(arrays.text(_field(row, "action_name")))
        if action not in actions:
            continue
        session, item = _text(where, row, "query_id"), _text(where, row, *_ITEM)
        is_known.extend([session in known] if session else [])
        if session is None or session not in asked:
            left_out["events without a known query"] += 1
        elif item is None:
            left_out["events without an item"] += 1
        else:
            yield _Event(session, item, _ordinal(_field(row, *_ORDINAL)), actions[action])
    if 2 * sum(is_known) < len(is_known):
        expected = "expected a known query of at least half of the events with a query_id"
        raise InputError(paths[0], received(expected, summary_line(left_out)))


def _impressions(
    impressions: Sequence[_Event],
    asked: Mapping[str, _Asked],
    base: int,
    left_out: collections.Counter[str],
) -> dict[tuple[str, str], int]:
    """The place of each item of a session that was shown, the first one if there are several."""
    shown: dict[tuple[str, str], int] = {}
    for event in impressions:
        index = asked[event.session].place(event.item, event.ordinal, base)
        if index is None:
            left_out["impressions without a position"] += 1
        else:
            shown.setdefault((event.session, event.item), index)
    return shown


def _table(
    shown: Mapping[tuple[str, str], int], clicked: Set[tuple[str, str]], asked: Mapping[str, _Asked]
) -> Any:
    """The rows, by session in the order of the queries, and by position."""
    order = {session: number for number, session in enumerate(asked)}
    ordered = sorted(shown.items(), key=lambda x: (order[x[0][0]], x[1]))
    columns = {
        "session": [session for (session, _), _ in ordered],
        "query": [asked[session].text for (session, _), _ in ordered],
        "item": [item for (_, item), _ in ordered],
        "position": [place + 1 for _, place in ordered],
        "click": [key in clicked for key, _ in ordered],
    }
    return pa.table(columns)


def _source(where: str, record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The document of a row of a search, or the row."""
    source = record.get("_source", record)
    if not isinstance(source, dict):
        raise InputError(where, received("expected an object in '_source'", f"{source!r:.60}"))
    texts = {name: x for name in _NESTED if isinstance(x := source.get(name), str) and x}
    return {**source, **{name: _parse_json(where, name, text) for name, text in texts.items()}}


def _parse_json(where: str, name: str, text: str) -> Any:
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        if value is None or isinstance(value, _NESTED[name]):
            return value
    kind = {list: "array", dict: "object"}[_NESTED[name]]
    raise InputError(where, received(f"{name!r} must be an {kind} or its JSON", f"{text!r:.60}"))


def _field(row: Any, *keys: str) -> Any:
    for key in keys:
        row = row.get(key) if isinstance(row, dict) else None
    return row


def _text(where: str, row: Any, *keys: str) -> str | None:
    """A field as text, as identifiers in tables; None if it is missing or empty."""
    text = arrays.text(_field(row, *keys))
    if text is not None and text.startswith(arrays.INVALID):
        name = ".".join(keys)
        raise InputError(where, received(f"{name!r} must be {TEXT}", format_value(text)))
    return text or None


def _ordinal(value: Any) -> int | None:
    """A whole number of 0 or more; None for other values."""
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return int(number) if 0.0 <= number < arrays.EXACT and number.is_integer() else None

"""Writes a site's confirmed changes as Atom and JSON feeds, and its scores as badges."""

import datetime as dt
import hashlib
import json
from collections.abc import Iterator, Sequence

import jinja2

from tilewatch.dashboard.charts import colours, grid
from tilewatch.dashboard.site.rendering import list_scores
from tilewatch.dashboard.site.site_content import Party, identify_change, name_regression_page
from tilewatch.db.page_reads.regressions import describe_origin
from tilewatch.text import one_line, short_sha, write_change

MOST_ITEMS = 100
LETTER_PX, MARGIN_PX = 7, 12
"""The width in pixels of a letter of a badge at 11 px, and the margin beside its words."""


def write_feeds(parties: Sequence[Party], address: str, templates: jinja2.Environment) -> Iterator[tuple[str, str]]:
    """Yields (file name, text) for the Atom feed and the JSON feed of `parties[0]`."""
    items = sorted(_list_items(parties[0], address), key=lambda item: item["date_modified"], reverse=True)[:MOST_ITEMS]
    updated = items[0]["date_modified"] if items else _write_time(parties[0].made_at)
    about = {"id": _name_id("site", parties[0].name), "updated": updated, "address": address}
    yield (
        "feed.atom",
        templates.get_template("feed.atom").render(items=items, author=one_line(parties[0].name), **about),
    )
    feed = {"version": "https://jsonfeed.org/version/1.1", "title": "Tilewatch: confirmed changes", "items": items}
    more = {"home_page_url": f"{address}index.html", "feed_url": f"{address}feed.json"} if address else {}
    yield "feed.json", json.dumps({**feed, **more}, indent=1) + "\n"


def write_badges(party: Party, templates: jinja2.Environment) -> Iterator[tuple[str, str]]:
    """Yields the file name and SVG of a badge per GPU. The first badge is also `badge.svg`."""
    found = next(filter(None, map(list_scores, party.sections)), [])
    template = templates.get_template("badge.svg")
    named = [(f"-{score.gpu_model}", score) for score in found]
    for end, score in (*(("", score) for score in found[:1]), *named):
        label, value = f"{one_line(score.gpu_name)} beside DeepGEMM", f"{score.ratio:.2f}x"
        left = len(label) * LETTER_PX + MARGIN_PX
        colour = grid.RATIO.colour(score.ratio)
        shown = {"label": label, "value": value, "left": left, "width": left + len(value) * LETTER_PX + MARGIN_PX}
        yield f"badge{end}.svg", template.render(colour=colour, ink=colours.ink_on(colour), **shown)


def _list_items(party: Party, address: str) -> Iterator[dict[str, str]]:
    """Yields the confirmed changes as items of a JSON Feed. A change has the same id in every site."""
    for section in party.sections:
        for row in section.regressions:
            size, kernel = write_change(row.size), f"{row.kernel}{describe_origin(vars(row))}"
            yield {
                "id": _name_id(*identify_change(row)),
                "url": f"{address}{name_regression_page(row)}",
                "title": one_line(f"{kernel} on {', '.join(row.gpu_models)}: {size}, {row.state}"),
                "content_text": one_line(f"{row.cause} Since {short_sha(row.bad_sha)} {row.bad_subject}."),
                "date_published": _write_time(row.opened_at),
                "date_modified": _write_time(row.changed_at),
            }


def _write_time(at: dt.datetime) -> str:
    return at.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _name_id(*about: str) -> str:
    """Returns a URN with a UUID that is a hash of the arguments."""
    digits = hashlib.sha256("\n".join(about).encode()).hexdigest()
    return f"urn:uuid:{digits[:8]}-{digits[8:12]}-8{digits[13:16]}-8{digits[17:20]}-{digits[20:32]}"

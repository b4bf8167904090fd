"""Publishes the database as a site: a folder that any web server, or a browser alone, can show.

    python -m tilewatch.dashboard.site.write_site ORDER

ORDER is JSON with the fields of SiteOrder. `tilewatch publish` runs this, because workers do not import the dashboard.
"""

import datetime as dt
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from tilewatch.dashboard.site import feeds, rendering, site_content, site_reads, templates
from tilewatch.dashboard.site.session_output import write_from
from tilewatch.dashboard.site.site_content import Party
from tilewatch.dashboard.text import moment
from tilewatch.text import one_line
from tilewatch.tuned import read_tables


@dataclass(frozen=True)
class SiteOrder:
    """A request to write a site into `folder`. `address` is its future URL. `merge` are other sites to include."""

    folder: Path
    name: str
    release: str
    repository: str | None = None
    address: str = ""
    tables: Path | None = None
    merge: tuple[Path, ...] = ()


def write_site(opened: Session, order: SiteOrder) -> str:
    """Writes all files of a site, and returns a summary. Old pages in the folder are not deleted."""
    others = [party for place in order.merge for party in site_content.read_parties(place)]
    tables = read_tables(order.tables) if order.tables else ()
    own = site_reads.read_party(opened, order.name, dt.datetime.now(dt.UTC), order.release, tables, order.repository)
    newest = {party.name: party for party in sorted(others, key=lambda party: party.made_at) if party.name != own.name}
    parties = (own, *newest.values())
    opened_templates = templates.open_templates()
    order.folder.mkdir(parents=True, exist_ok=True)
    site_content.write_parties(order.folder, parties)
    texts = {
        **dict(rendering.render(parties, opened_templates)),
        **dict(feeds.write_feeds(parties, f"{order.address.rstrip('/')}/" if order.address else "", opened_templates)),
        **dict(feeds.write_badges(own, opened_templates)),
        "site.css": templates.STYLE,
        "site.js": templates.SCRIPT,
        "plotly.min.js": files("plotly").joinpath("package_data", "plotly.min.js").read_text(encoding="utf-8"),
    }
    for badge in {*order.folder.glob("badge.svg"), *order.folder.glob("badge-*.svg")}:
        badge.unlink()  # that of a GPU model without a score would show the last one for good
    for name, text in texts.items():
        (order.folder / name).write_text(text, encoding="utf-8")
    left_out = [
        f"left out what {one_line(each.name)} published {moment(each.made_at)}: {reason}"
        for each in others
        if (reason := _find_reason_to_leave_out(each, own, newest))
    ]
    size = sum((order.folder / name).stat().st_size for name in (*texts, site_content.FILE))
    wrote = f"wrote {len(texts) + 1} files, {size / 1e6:.1f} MB; open {order.folder / 'index.html'}"
    return "\n".join([*dict.fromkeys(left_out), wrote])


def _find_reason_to_leave_out(party: Party, own: Party, newest: Mapping[str, Party]) -> str | None:
    """Returns why the site does not show a party; None if it is shown."""
    if party.name == own.name:
        return "this site has the same name"
    return "it is older" if party.made_at < newest[party.name].made_at else None


def main(arguments: Sequence[str]) -> int:
    order = TypeAdapter(SiteOrder).validate_json(arguments[0])
    return write_from(os.environ.get("TILEWATCH_DATABASE_URL", ""), lambda opened: write_site(opened, order))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

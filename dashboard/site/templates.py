"""Opens the templates of pages that need no server. Templates escape every text except drawings from charts/."""

from pathlib import Path

import jinja2
from markupsafe import Markup

from tilewatch.dashboard.charts import grid, scoreboard

HERE = Path(__file__).parent
STYLE = (HERE / "site.css").read_text(encoding="utf-8") + grid.STYLE + scoreboard.STYLE
SCRIPT = (HERE / "site.js").read_text(encoding="utf-8")


def open_templates() -> jinja2.Environment:
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    templates.globals["embed"] = _embed
    return templates


def insert(html: str) -> Markup:
    """Marks HTML as safe, so that templates do not escape it. Untrusted text in the HTML must already be escaped."""
    return Markup(html)  # noqa: S704 - see above


def _embed(figure: str) -> Markup:
    """Returns JSON that is safe in a script element, because it contains no "<"."""
    return insert(figure.replace("<", "\\u003c"))

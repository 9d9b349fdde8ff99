"""Pages and cards, rendered from the templates of this folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import markupsafe


def render(name: str, /, **values: Any) -> str:
    """Renders a template.

    Args:
        name: Name of the template; text is escaped in HTML templates.
        **values: Values of all its variables.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=".md." not in name,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name).render(**values)


def drawn(figures: Mapping[str, str]) -> dict[str, markupsafe.Markup]:
    """Returns figures as elements of the page, for templates."""
    return {name: markupsafe.Markup(svg) for name, svg in figures.items()}

"""Pages and cards, rendered from the templates of this folder."""

import importlib.resources
import re
from typing import Any

import jinja2


def render(name: str, /, **values: Any) -> str:
    """Renders a template.

    Args:
        name: Name of the template. Text is escaped in HTML templates; in Markdown templates by the
            filters `md` and `code`.
        **values: Values of all its variables.
    """
    return ENVIRONMENT.get_template(name).render(**values)


def in_markdown(text: object) -> str:
    """Returns text as Markdown that shows it, on one line.

    Example:
        >>> print(in_markdown("<b> [a](b)"))
        \\<b\\> \\[a\\](b)
    """
    return re.sub(r"([\\`*\[\]<>|&])", r"\\\1", " ".join(str(text).split()))


def as_code(text: object) -> str:
    """Returns text as a code span of Markdown, on one line; a backtick becomes an apostrophe."""
    return f"`{' '.join(str(text).split()).replace('`', chr(39))}`"


def _template(name: str) -> str:
    return importlib.resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FunctionLoader(_template),
    autoescape=lambda name: ".md." not in str(name),
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
ENVIRONMENT.filters.update(md=in_markdown, code=as_code)

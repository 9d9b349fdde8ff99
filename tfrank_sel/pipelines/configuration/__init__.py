"""Configuration of a run: one TOML file, read into typed settings.

Nothing here imports TensorFlow, so that errors are reported at once.
"""

from tfrank_sel.pipelines.configuration.files import Override, load, reference, replaced, text
from tfrank_sel.pipelines.configuration.section import ConfigurationError
from tfrank_sel.pipelines.configuration.sections import Configuration

__all__ = [
    "Configuration",
    "ConfigurationError",
    "Override",
    "load",
    "reference",
    "replaced",
    "text",
]

"""Configuration of a run: one TOML file, read into typed settings.

Nothing here imports TensorFlow, so that errors are reported at once.
"""

from tfrank_sel.pipelines.configuration.files import (
    Override as Override,
    load as load,
    reference as reference,
    text as text,
    with_overrides as with_overrides,
)
from tfrank_sel.pipelines.configuration.section import ConfigurationError as ConfigurationError
from tfrank_sel.pipelines.configuration.sections import Configuration as Configuration

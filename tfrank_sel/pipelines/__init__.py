"""Pipelines from files of lists to a served ranker: runs, and their steps for other orchestrators.

Names are imported at their first use.
"""

from typing import TYPE_CHECKING

from tfrank_sel import lazy
from tfrank_sel.errors import check_installed

_NEEDED = (
    "google_crc32c",
    "jinja2",
    "matplotlib",
    "pyarrow",
    "pydantic",
    "rich",
    "tensorflow_metadata",
    "tensorflow_serving",
    "tomlkit",
    "typer",
)
check_installed("`tfrank_sel.pipelines`", "pipelines", _NEEDED)

if TYPE_CHECKING:
    from tfrank_sel.pipelines import candidates as candidates
    from tfrank_sel.pipelines.analysis.drift import anomalies as anomalies
    from tfrank_sel.pipelines.analysis.gates import GateError as GateError, failures as failures
    from tfrank_sel.pipelines.analysis.statistics import (
        DataSplit as DataSplit,
        Statistics as Statistics,
        Summary as Summary,
    )
    from tfrank_sel.pipelines.analysis.step import check_named as check_named
    from tfrank_sel.pipelines.configuration import (
        Configuration as Configuration,
        ConfigurationError as ConfigurationError,
        load as load,
    )
    from tfrank_sel.pipelines.configuration.data import Gates as Gates
    from tfrank_sel.pipelines.configuration.training import Settings as Settings
    from tfrank_sel.pipelines.console import Activity as Activity, Progress as Progress
    from tfrank_sel.pipelines.evaluation.blessing import (
        Blessing as Blessing,
        Rules as Rules,
        bless as bless,
    )
    from tfrank_sel.pipelines.evaluation.evaluation import (
        MetricComparison as MetricComparison,
        evaluate as evaluate,
    )
    from tfrank_sel.pipelines.evaluation.saved import SavedScorer as SavedScorer
    from tfrank_sel.pipelines.ingestion.inputs import Job as Job, columns as columns
    from tfrank_sel.pipelines.ingestion.stored_lists import StoredLists as StoredLists
    from tfrank_sel.pipelines.learning.preparation import fit_preparation as fit_preparation
    from tfrank_sel.pipelines.push.step import side_by_side as side_by_side
    from tfrank_sel.pipelines.reporting.tables import comparison_table as comparison_table
    from tfrank_sel.pipelines.run.results import Run as Run, open_run as open_run

__getattr__, __dir__, __all__ = lazy.exported(__name__)

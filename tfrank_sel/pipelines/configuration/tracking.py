"""Section `tracking`: the tracking server of runs."""

import os

from pydantic import Field

from tfrank_sel.pipelines.configuration.section import Section

_FILE = "sqlite:///"


class Tracking(Section):
    """Tracking server to which each run is logged, in addition to its folder."""

    mlflow: str | None = Field(
        default=None,
        examples=["sqlite:///mlflow.db"],
        description="MLflow tracking URI; runs are not logged if unset.",
    )
    experiment: str = Field(
        default="tfrank_sel", min_length=1, description="MLflow experiment for the runs."
    )


def absolute(uri: str | None) -> str | None:
    """Returns the same tracking URI for any working directory.

    Example:
        >>> absolute("sqlite:////srv/mlflow.db"), absolute("http://localhost:5000")
        ('sqlite:////srv/mlflow.db', 'http://localhost:5000')
    """
    if uri is None or not uri.startswith(_FILE):
        return uri
    return _FILE + os.path.abspath(uri.removeprefix(_FILE))

"""Report of a study: its trials, and the value against each key."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from optuna.trial import TrialState

from tfrank_sel.pipelines import folders
from tfrank_sel.pipelines.reporting import figures, pages

if TYPE_CHECKING:
    from tfrank_sel.pipelines.tuning import Study


def write(study: "Study") -> Path:
    """Writes `report.html` of a study.

    Args:
        study: The study, with any number of trials.

    Returns:
        The page.
    """
    rows = [
        {
            "number": trial.number,
            "state": trial.state.name.lower(),
            "value": _last(trial),
            "epochs": len(trial.intermediate_values),
            "seconds": trial.user_attrs.get("seconds"),
            "values": study.shown(trial),
        }
        for trial in study.trials
    ]
    best = study.best
    page = pages.render(
        "study.html.jinja",
        rows=rows,
        keys=list(study.ranges),
        best=None if best is None else {"number": best.number, "value": best.value},
        figures=pages.drawn({} if best is None else _figures(study)),
    )
    path = study.output / "report.html"
    folders.write_text(path, page)
    return path


def _last(trial: Any) -> float | None:
    """The value of a trial; of one that is not complete, its last measured value."""
    if trial.value is not None or trial.last_step is None:
        return trial.value
    return trial.intermediate_values[trial.last_step]


def _figures(study: "Study") -> dict[str, str]:
    complete = [x for x in study.trials if x.state == TrialState.COMPLETE]
    pruned = [x.number for x in study.finished if x.state == TrialState.PRUNED]
    values = {trial.number: _last(trial) or 0.0 for trial in study.finished}
    drawn = {"study": figures.study(values, pruned)}
    for key, found in study.ranges.items():
        places = [study.shown(x)[key] if "choices" in found else x.params[key] for x in complete]
        own = [values[trial.number] for trial in complete]
        drawn[key] = figures.searched(key, places, own, bool(found.get("log")))
    return drawn

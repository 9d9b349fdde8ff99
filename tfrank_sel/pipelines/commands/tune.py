"""The command `tune`: a search for a configuration."""

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from tfrank_sel.commandline import refused
from tfrank_sel.data.lists import InputError
from tfrank_sel.launch import quiet
from tfrank_sel.pipelines import flags
from tfrank_sel.pipelines.analysis.gates import GateError
from tfrank_sel.pipelines.configuration import ConfigurationError, load
from tfrank_sel.pipelines.configuration.inputs import complete
from tfrank_sel.pipelines.files import folders

if TYPE_CHECKING:
    from tfrank_sel.pipelines.tuning import Study


def tune(
    context: typer.Context,
    output: Annotated[
        Path, typer.Option(help="Folder of the study: new, empty, or of a study to continue.")
    ],
    beam_options: flags.BeamOptions = None,
    config: flags.Config = None,
    set: flags.Set = None,
    module: flags.Module = None,
    trials: Annotated[int | None, flags.option("search.trials")] = None,
) -> None:
    """Search the ranges of the section `search` for the configuration with the best validation
    NDCG@10, and write it to `best.toml`.

    In the folder of a study, finished trials are kept and interrupted trials continue. Several
    processes can work on one study.
    """
    console = Console(soft_wrap=True)
    try:
        kept = output / folders.CONFIGURATION
        if config is None and kept.is_file():
            config = str(kept)
        configuration, _, _ = complete(load(config, flags.overrides(context.params)))
        # Imported late, so that help and errors do not wait for TensorFlow.
        with quiet():
            from tfrank_sel.pipelines import console as shown, tuning

        logging.getLogger("optuna").setLevel(logging.WARNING)  # it logs each trial
        logging.getLogger("tensorflow").setLevel(
            logging.ERROR
        )  # it warns when many models are traced
        study = tuning.Study(configuration, output)
        study.prepare(shown.Progress(console))
        study.run(console)
    except (ConfigurationError, ImportError, InputError) as error:
        raise refused(error) from error
    except GateError as error:
        print(f"{error}\nnothing is trained", file=sys.stderr)
        raise typer.Exit(3) from error
    except KeyboardInterrupt as error:
        print("interrupted; finished trials and epochs are kept", file=sys.stderr)
        print(f"continue with: tfrank-sel-pipelines tune --output {output}", file=sys.stderr)
        raise typer.Exit(130) from error
    _tell(study, console)


def _tell(study: "Study", console: Console) -> None:
    """Prints the best trial, and the command to train it."""
    best = study.best
    if best is None:
        console.print("no trial is complete", highlight=False)
        return
    console.print(f"best: NDCG@10 {best.value:.4f} of trial {best.number}", highlight=False)
    console.print("Next:", style="bold")
    print(f"optuna-dashboard sqlite:///{study.output / 'study.db'}")
    print(f"tfrank-sel-pipelines run --config {study.output / 'best.toml'} --output RUN")

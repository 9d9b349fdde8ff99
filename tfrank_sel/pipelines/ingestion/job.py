"""What a run is given: its configuration, its input files and its folder."""

import dataclasses
import functools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from tfrank_sel.data import stores
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.files.mirrors import Mirror
from tfrank_sel.pipelines.ingestion.inputs import Inputs
from tfrank_sel.pipelines.ingestion.resolved import resolve


@dataclasses.dataclass(frozen=True)
class Job:
    """What a run is given.

    Args:
        configuration: The configuration, with types for all features.
        inputs: Input files; None for synthetic data.
        output: Path or URL of the folder.
        left_out: The omitted columns, with the reasons.
    """

    configuration: Configuration
    inputs: Inputs | None
    output: str | Path
    left_out: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, configuration: Configuration, output: str | Path) -> Self:
        """Returns the job of a configuration; its files are found, but not read.

        Raises:
            tfrank_sel.data.InputError: If the input is invalid.
        """
        completed, inputs, left_out = resolve(configuration)
        return cls(completed, inputs, output, left_out)

    @functools.cached_property
    def mirror(self) -> Mirror:
        """The folder on this machine, and its place in a store."""
        return Mirror.of(self.output)

    @property
    def path(self) -> Path:
        """The folder on this machine."""
        return self.mirror.path

    @property
    def place(self) -> str:
        """Folder or URL of the run."""
        return str(self.mirror.url or self.path)

    @property
    def served(self) -> str:
        """Folder or URL of all served models."""
        folder = self.configuration.serving.folder
        if folder is None:
            return stores.join(self.place, "serving")
        return folder if stores.is_remote(folder) else os.path.abspath(folder)

    def files(self, split: str) -> str:
        """The files of a split, for errors."""
        sources = self.inputs.sources if self.inputs else ()
        return ", ".join(x.path for x in sources if x.split in (None, split)) or split

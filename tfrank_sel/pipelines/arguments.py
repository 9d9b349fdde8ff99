"""What the options of the command say, checked."""

from collections.abc import Mapping, Sequence

from tfrank_sel.data.formats import FORMATS, Columns
from tfrank_sel.pipelines.ingestion.inputs import SPLITS, Inputs, expand


def inputs(
    of_split: Mapping[str, Sequence[str] | None],
    undivided: Sequence[str] | None,
    split: str,
    format: str | None,
    columns: Columns,
    *,
    allow_bad_lines: int,
    adjacent: bool,
) -> Inputs | None:
    """Returns what to read, or None if no file is given.

    Args:
        of_split: Files or globs of each split.
        undivided: Files or globs to divide.
        split: Shares of the splits, by commas.
        format: The format of the files, if their names do not tell.
        columns: Names of the parts.
        allow_bad_lines: As in `Inputs`.
        adjacent: As in `Inputs`.

    Raises:
        ValueError: If the options do not go together, or one is malformed.
        tfrank_sel.data.InputError: If a pattern names no file.
    """
    if format is not None and format not in FORMATS:
        raise ValueError(f"--format must be one of {', '.join(FORMATS)}. Received: {format}")
    given = [name for name, files in of_split.items() if files]
    if undivided and given:
        raise ValueError(f"give --data or {_options(SPLITS)}. Received: --data, {_options(given)}")
    if given and len(given) < len(SPLITS):
        missing = [name for name in SPLITS if name not in given]
        raise ValueError(f"give all of {_options(SPLITS)}. Missing: {_options(missing)}")
    if undivided:
        found = expand(undivided)
    elif given:
        found = [x for name in SPLITS for x in expand(of_split[name] or (), name)]
    else:
        return None
    return Inputs(found, columns, shares(split), allow_bad_lines, adjacent, format)


def shares(text: str) -> dict[str, float]:
    """Returns the share of each split.

    Raises:
        ValueError: If these are not three positive numbers.

    Example:
        >>> shares("80,10,10")
        {'train': 0.8, 'validation': 0.1, 'test': 0.1}
    """
    try:
        numbers = [float(word) for word in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != len(SPLITS) or not all(0.0 < number < float("inf") for number in numbers):
        raise ValueError(f"--split must be three positive numbers: 80,10,10. Received: {text}")
    return {name: number / sum(numbers) for name, number in zip(SPLITS, numbers, strict=True)}


def names(text: str) -> tuple[str, ...]:
    """Returns the names that commas divide.

    Example:
        >>> names("price, clicks")
        ('price', 'clicks')
    """
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _options(found: Sequence[str]) -> str:
    return ", ".join(f"--{name}" for name in found)

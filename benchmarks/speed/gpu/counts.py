"""Counts in the programs: loops, conditionals, sorts, sequential steps and written bytes.

They come from XLA's optimised program for the CPU of this machine, the only one that XLA can make
without a GPU. Loops and conditionals are those of the formula; a GPU fuses other operations.
"""

import dataclasses
import math
import re
from collections.abc import Iterator, Sequence

import tensorflow as tf

from benchmarks.speed import rows
from benchmarks.speed.gpu.programs import Program
from tfrank_sel.ops import layout

COLUMNS = ("case", "layout for", "loops", "trips", "conditionals", "sorts", "steps", "MB written")
NO_STEP = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all"}
INSTRUCTION = re.compile(r"^  (?:ROOT )?%?\S+ = (.+?) ([a-z][a-z0-9-]*)\(")
ARRAY = re.compile(r"(pred|[a-z]+)(\d*)\[([\d,]*)\]")


@dataclasses.dataclass
class Counts:
    """What a program does: loops, the trips of all of them, and so on."""

    loops: int = 0
    trips: int = 0
    conditionals: int = 0
    sorts: int = 0
    steps: int = 0
    written: int = 0

    def add(self, other: "Counts", times: int = 1) -> None:
        """Adds a computation that runs so many times."""
        for field in dataclasses.fields(self):
            by = 1 if field.name == "loops" else times
            total = getattr(self, field.name) + by * getattr(other, field.name)
            setattr(self, field.name, total)


def lines(made: Sequence[Program]) -> Iterator[str]:
    """Yields the lines of a table: each program in the layout for a CPU and for a GPU."""
    yield from (_line(COLUMNS), "|" + "---|" * len(COLUMNS))
    for case, function, _ in made:
        specs = [tf.TensorSpec(x.shape, x.dtype) for x in case.inputs]
        for device in ("CPU", "GPU"):
            with layout.traced_for(device):
                fresh = tf.function(function.python_function, jit_compile=True, autograph=False)
                hlo = fresh.experimental_get_compiler_ir(*specs)(stage="optimized_hlo")
            found = counted(hlo)
            numbers = [getattr(found, field.name) for field in dataclasses.fields(found)]
            written = rows.digits(1e-6 * numbers.pop())
            yield _line((case.name, device, *(f"{number:,}" for number in numbers), written))


def counted(hlo: str) -> Counts:
    """Counts in an optimised program, from its entry; an unknown number of trips counts as 1."""
    computations = {}
    for text in re.split(r"\n(?=%|ENTRY)", hlo)[1:]:
        name = text.split()[1 if text.startswith("ENTRY") else 0].lstrip("%")
        computations["ENTRY" if text.startswith("ENTRY") else name] = text.splitlines()[1:]

    def of(name: str) -> Counts:
        counts = Counts()
        for line in computations[name]:
            if not (match := INSTRUCTION.match(line)):
                continue
            result, operation = match.groups()
            if operation == "while":
                known = re.search(r"known_trip_count\D+(\d+)", line)
                trips = int(known[1]) if known else 1
                counts.add(Counts(loops=1, trips=trips))
                counts.add(of(_named(line, "body")), trips)
            elif operation == "conditional":
                branches = re.search(r"(?:branch_computations=\{|true_computation=)([^}]+)", line)
                counts.conditionals += 1
                each = re.findall(r"%([\w.-]+)", branches[1])
                counts.add(max(map(of, each), key=lambda x: x.steps))
            elif operation == "call":
                counts.add(of(_named(line, "to_apply")))
            elif operation not in NO_STEP:
                counts.sorts += operation == "sort"
                counts.steps += 1
                counts.written += sum(map(_size, ARRAY.findall(result)))
        return counts

    return of("ENTRY")


def _named(line: str, role: str) -> str:
    return re.search(rf"{role}=%?([\w.-]+)", line)[1]


def _size(array: tuple[str, str, str]) -> int:
    _, bits, shape = array
    return int(bits or 8) // 8 * math.prod(map(int, filter(None, shape.split(","))))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

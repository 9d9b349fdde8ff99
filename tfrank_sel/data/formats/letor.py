"""Reader for LETOR and SVMLight files with one item per line."""

from collections.abc import Iterator, Sequence

from tfrank_sel.data import letor
from tfrank_sel.data.formats.columns import Layout
from tfrank_sel.data.formats.protocol import Part
from tfrank_sel.data.formats.text import LineReader
from tfrank_sel.data.lists import Found, ItemList, Rejected
from tfrank_sel.features import REFUSE, Vector


class LetorReader(LineReader):
    """Reader of LETOR and SVMLight files, plain or `.gz`.

    A list across the border of two parts is read as a whole, in one of them.
    """

    name = "letor"
    is_distinct = True
    suffixes = tuple(
        f".{kind}{more}"
        for kind in ("txt", "letor", "svm", "svmlight", "libsvm", "dat")
        for more in ("", ".gz")
    )

    def layout(self, paths: Sequence[str]) -> Layout:
        """Returns the layout, with the number of features from `columns` or from all files."""
        found = self.columns.num_features or max(letor.num_features(path) for path in paths)
        return Layout({"features": Vector(size=found, missing=REFUSE, within_list=True)})

    def lists(self, part: Part, layout: Layout) -> Iterator[Found | Rejected]:
        for one in letor.scan(part.path, len(layout.names), part.start, part.stop):
            yield Found(one) if isinstance(one, ItemList) else one

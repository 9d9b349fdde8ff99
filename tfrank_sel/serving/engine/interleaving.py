"""Interleaving: the rankings of two versions of a model, mixed."""

import contextlib
import contextvars
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO

import numpy as np

from tfrank_sel import roads
from tfrank_sel.arguments import StrPath
from tfrank_sel.errors import received
from tfrank_sel.export.signatures import PADDING_SCORE
from tfrank_sel.serving.engine.model import Model, Signature
from tfrank_sel.serving.engine.predict import complete_inputs
from tfrank_sel.serving.engine.tensor_protos import Arrays
from tfrank_sel.serving.engine.versions import ModelVersions, Rounds
from tfrank_sel.serving.status import SESSION, Code, ServingError, check_session, invalid

# of the request that this thread or task answers
session: contextvars.ContextVar[str] = contextvars.ContextVar("session", default="")

# by method, what a list is logged with, and the function of `tfrank_sel.clicks` that mixes it
_METHODS = {"team_draft": ("teams", "drafted"), "optimised": ("credits", "credited")}


class Interleaving:
    """Two versions of a model whose rankings are mixed, and the log of the lists.

    Args:
        model: Name of the model.
        versions: Two versions. Requests without a session get answers of the first one.
        log: File to append to: a JSON line for each list, with `session`, its `items` in the mixed
            order (their doc ids, or else their indices in the request) and the `teams` of these, 0
            for the first version and 1 for the second, or their `credits`, those of
            `clicks.optimised`. A file that is moved away is made again.
        method: `"team_draft"` or `"optimised"`.

    Attributes:
        on_lost: Called for each list that cannot be written.

    Raises:
        OSError: If the file cannot be written.
    """

    def __init__(
        self,
        model: str,
        versions: Sequence[int],
        log: StrPath,
        method: str = "team_draft",
    ) -> None:
        self.model, self.versions = model, tuple(versions)
        self._values, function = _METHODS[method]
        self._mix = getattr(roads.load("clicks", "`--interleave`"), function)
        self._log = log
        self._file = _open_log(log)
        self._lock, self._rounds = threading.Lock(), Rounds()
        self.on_lost: Callable[[], None] = lambda: None

    def check(self, served: ModelVersions) -> None:
        """Raises a ServingError, NOT_FOUND, if a version is not served."""
        for version in self.versions:
            if not served.is_available(version):
                others = [x.version for x in served.statuses() if served.is_available(x.version)]
                message = received(
                    f"Version {version} of {served.config.name} must be served to be interleaved",
                    ", ".join(map(str, others)) or "none",
                )
                raise ServingError(Code.NOT_FOUND, message)

    @contextlib.contextmanager
    def acquire(self, served: ModelVersions) -> Iterator[Model | None]:
        """Holds both versions for a request of a session, or else the first one, or the latest.

        Raises:
            ServingError: INVALID_ARGUMENT for a name that no session may have.
        """
        if name := session.get():
            try:
                check_session(name)
            except ValueError as error:
                raise invalid(f"{SESSION}: {error}") from error
        with contextlib.ExitStack() as held:
            first, second = (held.enter_context(served.acquire(x)) for x in self.versions)
            if first and second and name:
                yield _Mixed(first, second, self)
                return
            if not first or not second:  # a new configuration may serve others
                with self._rounds.attempt(""):
                    self.check(served)
            yield first or held.enter_context(served.acquire(None))

    def mix(self, orders: Sequence[Sequence[bytes | int]]) -> list[bytes | int]:
        """Mixes two orders and logs the list; a log that cannot be written fails no request."""
        # Unlike `hash`, equal in all processes: each server mixes the lists of a session alike.
        digest = hashlib.blake2b(session.get().encode(), digest_size=8).digest()
        mixed = self._mix(*orders, seed=int.from_bytes(digest))
        names = [
            x.decode("utf-8", "backslashreplace") if isinstance(x, bytes) else str(x) for x in mixed
        ]
        values = {self._values: list(mixed.values())}
        line = json.dumps({"session": session.get(), "items": names} | values)
        with self._lock:
            with self._rounds.attempt(f"cannot write {self._log}"):
                self._reopen()
                # Written out before the answer is sent: no click precedes its list.
                self._file.write(line + "\n")
                self._file.flush()
            if self._rounds.fault:
                self.on_lost()
        return list(mixed)

    def _reopen(self) -> None:
        """Makes the file again if it was moved away, such as by logrotate."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.stat(self._log), os.fstat(self._file.fileno())):
                return
        file = _open_log(self._log)
        with contextlib.suppress(OSError):  # of what a full disk still holds back
            self._file.close()
        self._file = file


def _open_log(log: StrPath) -> IO[str]:
    """A log to append lines to, also behind one that another process was killed in."""
    file = open(log, "a", encoding="utf-8")  # noqa: SIM115 - it is written to until the end
    if size := os.fstat(file.fileno()).st_size:
        with contextlib.suppress(PermissionError), open(log, "rb") as before:
            before.seek(size - 1)
            file.write("" if before.read() == b"\n" else "\n")
    return file


class _Mixed(Model):
    """The first version, whose order is mixed with that of the second one."""

    # It borrows both models, which `Interleaving.acquire` holds, and loads none of its own.
    def __init__(self, first: Model, second: Model, interleaving: Interleaving) -> None:
        self.path, self.version = first.path, first.version
        self.definitions, self.signatures = first.definitions, first.signatures
        self._both, self._interleaving = (first, second), interleaving
        self.described = first

    def run(
        self,
        signature: Signature,
        inputs: Arrays,
        outputs: Sequence[str],
        timeout: float | None = None,
    ) -> list[np.ndarray]:
        other = self._both[1].signatures.get(signature.name)
        if other is None or "scores" not in {*signature.fetches} & {*other.fetches}:
            raise invalid(
                f"Signature {signature.name} must give `scores` in both versions to be interleaved",
                ", ".join(signature.fetches),
            )
        needed = [name for name in ("scores", "doc_ids") if name in signature.fetches]
        names = [*outputs, *(name for name in needed if name not in outputs)]
        answer = dict(zip(names, self._both[0].run(signature, inputs, names, timeout), strict=True))
        inputs = complete_inputs(other, inputs)
        answer |= _mix_scores(
            [answer[name] for name in needed],
            self._both[1].run(other, inputs, needed, timeout),
            self._interleaving,
        )
        return [answer[name] for name in outputs]


def _mix_scores(
    first: Sequence[np.ndarray], second: Sequence[np.ndarray], interleaving: Interleaving
) -> Arrays:
    """Mixes the scores of two versions and, of ranked items, their doc ids."""
    scores = first[0]
    if scores.ndim != 2 or len(scores) != 1 or scores.shape != second[0].shape:
        raise invalid(
            "A request to interleaved versions must have one list",
            f"scores of shape {scores.shape} and {second[0].shape}",
        )
    orders = [_order(*(x[0] for x in outputs)) for outputs in (first, second)]
    for order in orders:
        if len(set(order)) < len(order):
            raise invalid("`doc_ids` must differ to be interleaved", "one of them twice")
    best = interleaving.mix(orders)
    size = len(best)
    # Scores of two models have no common scale, so that only the order is answered.
    mixed = {"scores": np.full_like(scores, PADDING_SCORE)}
    if len(first) > 1:
        mixed["doc_ids"] = first[1].copy()
        mixed["doc_ids"][0, :size] = best
        best = list(range(size))
    mixed["scores"][0, np.array(best, int)] = np.arange(size, 0, -1)
    return mixed


def _order(scores: np.ndarray, doc_ids: np.ndarray | None = None) -> list[bytes | int]:
    """The items, best first: doc ids, which are ranked, or else indices of the scores."""
    is_item = scores > PADDING_SCORE
    if doc_ids is not None:
        return doc_ids[is_item].tolist()
    best = np.argsort(-scores, kind="stable")
    return best[is_item[best]].tolist()

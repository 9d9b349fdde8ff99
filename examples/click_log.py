"""Makes a click log with columns of all types, and what it takes to rank by them.

    python examples/click_log.py [--rows 1000000] [--seed 0] [FOLDER]

Writes `clicks.parquet` and `run.toml`, a configuration to train on it. The clicks come from a
utility that is known: a low price, a new item, a brand that is liked, a tag that the device likes
and an embedding add to it, and an item whose price is missing is hardly ever clicked.
"""

import argparse
import pathlib

import numpy as np
import pyarrow as pa
from pyarrow import parquet

BRANDS, TAGS, DEVICES = 200, 30, ("desktop", "phone", "tablet", "tv")
CONFIGURATION = """\
[data]
data = ["{folder}/clicks.parquet"]
query = "session"
label = "clicked"
doc_id = "item"
weight = "weight"
slice_by = ["device"]

[features]
price = "number"
rating = {{ type = "number", missing = 3.0 }}
in_stock = "bool"
brand = "category"
device = {{ type = "category", of = "query", encoding = "one_hot" }}
tags = {{ type = "set", max_values = 4 }}
seller = {{ type = "hash", buckets = 500 }}
embedding = {{ type = "vector", size = 8 }}
published_at = {{ type = "timestamp", since = "shown_at" }}
shown_at = {{ type = "timestamp", of = "query", parts = true }}
"""


def clicks(rows: int, seed: int) -> pa.Table:
    """Returns a click log.

    Args:
        rows: Number of items shown, about: lists are whole.
        seed: The same seed makes the same log.
    """
    random = np.random.default_rng(seed)
    sizes = random.integers(5, 30, rows // 17 + 1)
    sizes = sizes[: np.searchsorted(np.cumsum(sizes), rows) + 1]
    session = np.repeat(np.arange(len(sizes)), sizes)
    count = len(session)

    truth = np.random.default_rng(0)  # the same for all logs
    liked = truth.normal(size=BRANDS)
    fits = truth.normal(size=(len(DEVICES), TAGS))
    taste = truth.normal(size=8) / 3.0

    brand = np.minimum(random.zipf(1.3, count), BRANDS) - 1
    device = random.choice(len(DEVICES), len(sizes), p=(0.4, 0.45, 0.1, 0.05))[session]
    tags = random.integers(0, TAGS, (count, 3))
    num_tags = random.integers(0, 4, count)
    is_tag = np.arange(3) < num_tags[:, None]
    tag_effect = np.sum(fits[device[:, None], tags] * is_tag, axis=1) / np.maximum(num_tags, 1)
    price = random.lognormal(3.0, 1.0, count)
    has_price = random.random(count) > 0.15
    rating = np.round(random.uniform(1.0, 5.0, count), 1)
    has_rating = random.random(count) > 0.3
    in_stock = random.random(count) > 0.2
    embedding = random.normal(size=(count, 8)).astype(np.float32)
    shown_at = 1_750_000_000 + np.cumsum(random.integers(1, 20, len(sizes)))[session]
    age_days = random.exponential(60.0, count)
    published_at = shown_at - (age_days * 86_400).astype(int)

    utility = (
        np.where(has_price, -0.8 * (np.log(price) - 3.0), -3.0)
        + np.where(has_rating, 0.4 * (rating - 3.0), 0.0)
        + 1.0 * in_stock
        + 0.8 * liked[brand]
        + 0.8 * tag_effect
        + embedding @ taste
        - 0.3 * np.log1p(age_days)
    )
    clicked = random.random(count) < 1.0 / (1.0 + np.exp(1.5 - utility))
    names = np.array([f"tag-{i}" for i in range(TAGS)], object)
    values = names[tags[is_tag]]
    offsets = np.concatenate([[0], np.cumsum(num_tags)]).astype(np.int32)
    seconds = pa.timestamp("s", "UTC")
    return pa.table(
        {
            "session": np.char.add("s", session.astype(str)),
            "item": np.char.add("i", random.integers(0, count // 2 + 1, count).astype(str)),
            "clicked": clicked,
            "weight": np.where(device == 3, 0.5, 1.0).astype(np.float32),
            "price": pa.array(np.round(price, 2), mask=~has_price),
            "rating": pa.array(rating, mask=~has_rating),
            "in_stock": in_stock,
            "brand": pa.array(np.char.add("brand-", brand.astype(str))).dictionary_encode(),
            "device": np.array(DEVICES)[device],
            "tags": pa.ListArray.from_arrays(offsets, pa.array(values, pa.string())),
            "seller": random.integers(0, 5_000, count),
            "embedding": pa.FixedSizeListArray.from_arrays(embedding.ravel(), 8),
            "published_at": pa.array(published_at, pa.int64()).cast(seconds),
            "shown_at": pa.array(shown_at, pa.int64()).cast(seconds),
            "utility": utility.astype(np.float32),
        }
    )


def main() -> None:
    """Writes the log and its configuration."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", default=".", type=pathlib.Path)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    table = clicks(arguments.rows, arguments.seed)
    parquet.write_table(table, folder / "clicks.parquet")
    (folder / "run.toml").write_text(CONFIGURATION.format(folder=folder))
    print(f"{table.num_rows} rows in {folder}/clicks.parquet; next:")
    print(f"tfrank-sel-pipelines run --config {folder}/run.toml --output {folder}/run")


if __name__ == "__main__":
    main()

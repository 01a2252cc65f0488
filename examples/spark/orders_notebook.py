"""Orders from a topic to a lake, with plots: a notebook as a Python file.

Editors and Jupyter (with jupytext) open it cell by cell, `# %%` begins one. As a program it runs them all, and writes
its plots to `orders-plots/` as SVG:

    headrace up &
    python examples/spark/orders_notebook.py
"""

# %% [markdown]
# # From a topic to a table
# It needs `pip install 'headrace[spark,lake]'` and a broker: `headrace up` starts one. No jar.

# %%
import json
import os
import random
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.client import Admin, NewTopic, Producer
from headrace.errors import ErrorCode, KafkaError
from headrace.pipeline.lake import LakeOptions, LakeProgress, Watcher, run
from headrace.spark.door import door

BOOTSTRAP = os.environ.get("HEADRACE_BOOTSTRAP", "127.0.0.1:9092")
TOPIC = os.environ.get("ORDERS_TOPIC", "orders")
FOLDER = Path(os.environ.get("ORDERS_FOLDER", ".")).absolute()
ORDERS = int(os.environ.get("ORDERS", "20000"))
DAY_MS = 86_400_000

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.appName("orders").config("spark.sql.session.timeZone", "UTC").getOrCreate()

# %% [markdown]
# ## Orders
# Two weeks of them; every hundredth is not what it should be.


# %%
def order(number: int, chance: random.Random) -> bytes:
    if number % 100 == 99:
        return b"order %d was not written as JSON" % number
    day = chance.choices(range(14), weights=[3, 3, 4, 4, 6, 9, 8] * 2)[0]
    at_ms = 1_767_225_600_000 + day * DAY_MS + chance.randrange(DAY_MS)
    amount = round(chance.lognormvariate(3, 0.8), 2)
    country = chance.choices(["de", "fr", "it", "pl"], weights=[5, 4, 3, 2])[0]
    return json.dumps({"id": number, "placed_ms": at_ms, "country": country, "amount": amount}).encode()


async def produce(count: int) -> None:
    async with Admin(BOOTSTRAP) as admin:
        try:
            await admin.create_topics([NewTopic(TOPIC, 4)])
        except KafkaError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    chance = random.Random(7)
    async with Producer(BOOTSTRAP, compression="zstd") as producer:
        for number in range(count):
            await producer.ready()
            producer.send(TOPIC, order(number, chance), key=b"%d" % number)
        await producer.flush()


door().run(produce(ORDERS))  # a notebook has an event loop of its own, in which nothing may wait

# %% [markdown]
# ## To the lake
# The same as `headrace pipeline lake orders --to ./orders-lake --once --event-time placed_ms`. The schema is inferred
# from a sample, and what is no JSON goes to the topic `orders-dead-letter`.

# %%
seen: list[LakeProgress] = []
result = run(
    LakeOptions(
        topics=(TOPIC,),
        to=str(FOLDER / "orders-lake"),
        bootstrap=BOOTSTRAP,
        once=True,
        event_time="placed_ms",
        rows_per_batch=max(1, ORDERS // 5),
    ),
    Watcher(said=print, progressed=seen.append),
    spark=spark,
)
print(f"{result.rows:,} rows, {result.dead_letters:,} dead letters, {result.files} files in {result.seconds:.1f} s")

# %% [markdown]
# ## Plots
# Drawn without a library, so that they look the same everywhere.


# %%
def plot(title: str, labels: Sequence[str], values: Sequence[float], unit: str) -> str:
    """Bars, as SVG."""
    width, bar, top, left = 640, 22, 44, 130
    longest = max([*values, 1e-9])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{top + bar * len(values) + 12}"'
        ' font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="8" y="24" font-size="15">{escape(title)}</text>',
    ]
    for at, (label, value) in enumerate(zip(labels, values, strict=True)):
        y, length = top + bar * at, (width - left - 110) * value / longest
        parts.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{escape(label)}</text>')
        parts.append(f'<rect x="{left}" y="{y + 3}" width="{length:.1f}" height="{bar - 7}" fill="#2b7a78"/>')
        parts.append(f'<text x="{left + length + 6:.1f}" y="{y + 14}">{value:,.0f} {escape(unit)}</text>')
    return "\n".join([*parts, "</svg>", ""])


def show(name: str, svg: str) -> None:
    """In a notebook below the cell; and in a file."""
    (FOLDER / "orders-plots").mkdir(parents=True, exist_ok=True)
    (FOLDER / "orders-plots" / f"{name}.svg").write_text(svg)
    if "ipykernel" in sys.modules:
        from IPython.display import SVG, display

        display(SVG(svg))


# %%
rows = ds.dataset(str(FOLDER / "orders-lake"), format="parquet", partitioning="hive").to_table()
by_day = rows.group_by("event_date").aggregate([("amount", "sum")]).sort_by("event_date")
show(
    "turnover",
    plot(
        "Turnover by day",
        [str(day) for day in by_day["event_date"].to_pylist()],
        by_day["amount_sum"].to_pylist(),
        "EUR",
    ),
)

by_country = rows.group_by("country").aggregate([("id", "count")]).sort_by([("id_count", "descending")])
show(
    "countries",
    plot("Orders by country", by_country["country"].to_pylist(), by_country["id_count"].to_pylist(), "orders"),
)

speeds = [progress.rows_per_s for progress in seen]
show("speed", plot("How fast it went", [f"batch {one.batch_id}" for one in seen], speeds, "rows/s"))

# %% [markdown]
# ## Why rows are missing
# The dead letters are an ordinary topic, and Spark reads it with the same source.

# %%
if result.dead_letters:
    letters = (
        spark.read.format("headrace")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", f"{TOPIC}-dead-letter")
        .option("kafka.isolation.level", "read_committed")
        .option("includeHeaders", "true")
        .load()
    )
    reason = f.expr("string(filter(headers, h -> h.key = 'headrace.reason')[0].value)")
    for row in letters.groupBy(reason.alias("reason")).count().collect():
        print(f"{row['count']} records: {row.reason}")

# %% [markdown]
# Run it again: the query goes on where it was, and only new orders become rows.

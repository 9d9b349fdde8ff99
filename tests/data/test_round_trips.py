"""What is written is read as the same values, or refused: one property of all forms of lists."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings, strategies as st

from tfrank_sel import data
from tfrank_sel.data import FeatureSpec, elwc, letor, packed, parsing
from tfrank_sel.data.cache import Cache

ODD_NUMBERS = [-1.0, 3.4e38, 1e39, 1e300, -1e300, np.inf, -np.inf, np.nan]
NUMBERS = [0.0, -0.0, 1.0, 2.5, 0.1, 2.0**24 + 1, 2.0**63, 1e-320]
INTEGERS = [0, 1, 2**24 + 1, 2**63 - 1, 2**63 + 5, 2**64 - 1]
ODD_TEXTS = ["", "a b", "a#b", "#", "\ud800", "\x00", "\x85", "\u2028", "\ufeff"]
TEXTS = ["a", "b", "docid=b", "a:1", "\u00e9"]


def mostly(usual, odd):
    """The usual values, or with odd ones."""
    return st.sampled_from([usual, usual, usual, [*usual, *odd]])


@st.composite
def spec_and_lists(draw):
    spec = FeatureSpec(
        draw(st.integers(0, 2)) or 1,
        num_texts=draw(st.sampled_from([0, 0, 1, 2])),
        weight=draw(st.sampled_from([None, None, "weight"])),
    )
    return spec, [draw(lists(spec)) for _ in range(draw(st.integers(1, 3)))]


@st.composite
def lists(draw, spec):
    size = draw(st.sampled_from([0, 1, 2, 2, 3]))
    texts, floats = draw(mostly(TEXTS, ODD_TEXTS)), draw(mostly(NUMBERS, ODD_NUMBERS))

    def column(values, width=1):
        elements = st.sampled_from(values)
        return draw(st.lists(elements, min_size=size * width, max_size=size * width))

    def numbers(width=1):
        are_floats = draw(st.booleans())
        kind = draw(st.sampled_from([np.float64, np.float32])) if are_floats else np.uint64
        with np.errstate(over="ignore"):
            return np.array(column(floats if are_floats else INTEGERS, width), kind)

    return data.ItemList(
        draw(st.sampled_from(texts)),
        numbers(),
        numbers(spec.num_features).reshape(size, spec.num_features),
        tuple(column(texts)),
        np.array(column(texts, spec.num_texts), np.object_).reshape(size, -1)
        if spec.num_texts and size
        else np.zeros([size, spec.num_texts], np.object_),
        numbers() if spec.weight and draw(st.booleans()) else None,
    )


def through_letor(folder, spec, item_lists):
    letor.write(folder / "lists.txt", item_lists)
    return [plain(x) for x in letor.read(folder / "lists.txt", spec.num_features)]


def through_records(form, query_of):
    def through(folder, spec, item_lists):
        records = [
            form.serialize(
                x.features,
                spec,
                labels=x.labels,
                doc_ids=[name.encode() for name in x.doc_ids],
                query_id=x.query_id.encode(),
                texts=x.texts if spec.num_texts else None,
                weights=x.weights,
            )
            for x in item_lists
        ]
        parsed = {x: y.numpy() for x, y in form.parse(tf.constant(records), spec).items()}
        found = []
        for i, (record, mask) in enumerate(zip(records, parsed["mask"], strict=True)):
            of_list = {name: x[i][mask] for name, x in parsed.items()}
            names = [name.decode() for name in of_list["doc_id"]]
            texts = [text.decode() for text in of_list.get("texts", np.zeros(0)).flat]
            weights = of_list.get("weight", np.ones(len(names)))
            numbers = of_list["relevance"], of_list["features"], weights
            found.append((query_of(record), names, texts, *map(listed, numbers)))
        return found

    return through


def query_of_packed(record):
    [query] = tf.train.Example.FromString(record).features.feature["query_id"].bytes_list.value
    return query.decode()


def query_of_elwc(record):
    spec = FeatureSpec(1).list_features()
    _, query, _ = parsing.split(tf.constant([record]))
    return tf.io.parse_example(query, spec.context)["query_id"].numpy()[0].decode()


def listed(values):
    """Numbers as text, in float32, of which each NaN is one."""
    with np.errstate(over="ignore"):
        return [f"{x:.9g}" for x in np.asarray(values).astype(np.float32).ravel()]


def plain(one):
    size = len(one.labels)
    weights = np.ones(size) if one.weights is None else one.weights
    texts = [] if one.texts is None else [*one.texts.flat]
    numbers = map(listed, (one.labels, one.features, weights))
    return one.query_id, [*one.doc_ids], texts, *numbers


FORMS = {
    "LETOR": through_letor,
    "packed": through_records(packed, query_of_packed),
    "ELWC": through_records(elwc, query_of_elwc),
}


def loses(one):
    """Whether a finite number is beyond float32."""
    given = (x for x in (one.labels, one.features, one.weights) if x is not None)
    return any(np.any(np.isfinite(x) & (np.abs(x.astype(float)) > 3.5e38)) for x in given)


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=100, deadline=None)
@given(spec_and_lists())
def test_lists_are_read_as_they_were_written_or_refused(tmp_path_factory, form, drawn):
    spec, item_lists = drawn
    try:
        found = FORMS[form](tmp_path_factory.mktemp("lists"), spec, item_lists)
    except data.InputError as error:
        raise AssertionError("written, but not readable") from error
    except ValueError:
        return
    assert found == [plain(x) for x in item_lists]
    assert not any(map(loses, item_lists))


@settings(max_examples=100, deadline=None)
@given(spec_and_lists(), st.data())
def test_a_cache_gives_the_batches_back_or_refuses_them(tmp_path_factory, drawn, draw):
    _, item_lists = drawn
    batches = []
    for x in item_lists:
        inputs = {"mask": np.ones([1, len(x.labels)], bool), "x": x.features[None]}
        if draw.draw(st.booleans()):
            inputs["y"] = x.labels[None]
        if x.texts.size:
            inputs["texts"] = x.texts[None]
        others = [x.labels[None]] if x.weights is None else [x.labels[None], x.weights[None]]
        batches.append((inputs, *others))
    folder = tmp_path_factory.mktemp("cache") / "lists"
    try:
        Cache.write(batches, folder)
    except ValueError:
        assert not folder.exists()
        return
    cache = Cache.load(folder)
    assert cache.sizes.tolist() == [len(x.labels) for x in item_lists if len(x.labels)]
    for inputs, *others in batches:
        assert [*cache.parts] == [*list(inputs)[1:], *["labels", "weights"][: len(others)]]
    for name in cache.parts:
        index = {"labels": 1, "weights": 2}.get(name)
        parts = [batch[0][name] if index is None else batch[index] for batch in batches]
        items = cache.items(name)
        kept = [x[0] for x in parts]
        if name == "labels":  # of which NaN is padding
            kept = [x.astype(np.float32) if x.dtype.kind in "iu" else x for x in kept]
        np.testing.assert_array_equal(items, np.concatenate(kept), strict=True)


@pytest.mark.parametrize(
    ("inputs", "others", "message"),
    [
        (
            {"x": np.zeros([1, 2, 1])},
            1,
            r"batch 2: 'x' must be float32 \[1\], as in the first\. Re.*float64",
        ),
        ({"x": np.zeros([1, 2, 2], "f")}, 1, r"batch 2: 'x' .*float32 \[2\]"),
        ({"x": np.zeros([1, 2], "f")}, 1, r"batch 2: 'x' .*float32 \[\]"),
        ({"x": np.zeros([1, 3, 1], "f")}, 1, r"batch 2: 'x' must have the items of a Boolean mask"),
        ({}, 1, r"batch 2: 'x' .*absent"),
        ({"x": np.zeros([1, 2, 1], "f"), "y": np.zeros([1, 2])}, 1, r"batch 2: 'y' must be absent"),
        ({"x": np.zeros([1, 2, 1], "f")}, 2, r"batch 2: 'weights' must be absent"),
        ({"x": np.zeros([1, 2, 1], "f"), "../y": np.zeros([1, 2])}, 1, r"another name.*\.\./y"),
        ({"x": np.array([["a", "b"]])}, 1, r"batch 2: 'x' must be numbers"),
    ],
)
def test_a_cache_names_the_batch_and_the_part_that_differ(tmp_path, inputs, others, message):
    mask, labels = np.ones([1, 2], bool), np.ones([1, 2], np.float32)
    first = {"mask": mask, "x": np.zeros([1, 2, 1], np.float32)}, labels
    with pytest.raises(ValueError, match=message):
        Cache.write([first, ({"mask": mask, **inputs}, *[labels] * others)], tmp_path / "lists")

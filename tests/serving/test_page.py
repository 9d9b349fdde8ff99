import contextlib
import html
import http.client
import http.server
import importlib.resources
import json
import re
import shutil
import subprocess
import threading

import keras
import numpy as np
import pytest

from tests.serving import named
from tfrank_sel import export
from tfrank_sel.data import elwc, requests, typed, writing
from tfrank_sel.data.spec import FeatureSpec
from tfrank_sel.serving.client import Ranker
from tfrank_sel.serving.deployment.model_config import Latest, ModelConfig
from tfrank_sel.serving.endpoint import Endpoint

of_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")


def page(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/")
    response = connection.getresponse()
    assert (response.status, response.getheader("content-type")) == (
        200,
        "text/html; charset=utf-8",
    )
    return response.read().decode()


def dom(port, *settings):
    """What a browser makes of the page."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    url = f"http://127.0.0.1:{port}/"
    command = ["chromium", *options, *settings, "--virtual-time-budget=10000", "--dump-dom", url]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@contextlib.contextmanager
def scripted(port, script):
    """Port of a server that passes all on to that of `port`, its page with a script at the end."""

    class Proxy(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            connection = http.client.HTTPConnection("127.0.0.1", port)
            size = int(self.headers.get("content-length", 0))
            connection.request(self.command, self.path, self.rfile.read(size))
            response = connection.getresponse()
            body = response.read()
            if self.path == "/":
                body = body.replace(b"</html>", f"<script>{script}</script></html>".encode())
            self.send_response(response.status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *arguments):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Proxy) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_the_page_tells_what_models_take_and_asks_nothing_from_elsewhere(endpoint, named_endpoint):
    def takes(text):
        return json.loads(text.split('id="takes">')[1].split("</script>")[0])

    text = page(endpoint.rest_port)
    assert list(takes(text)) == ["half"]
    assert "http:" not in text
    assert "https:" not in text
    models = takes(page(named_endpoint.rest_port))
    assert (models["packed"]["num_features"], models["packed"]["features"]) == (3, {})
    told = {name: x["type"] for name, x in models["ranker"]["features"].items()}
    assert told == {name: feature.type for name, feature in named.TYPES.items()}


@of_chromium
def test_a_browser_shows_the_states_of_the_models(endpoint):
    assert dom(endpoint.rest_port).count("<td>AVAILABLE</td>") == 2


FILLED = """
const filled = [
  {price: "2.5", stock: "3", is_new: "true", brand: "acme", year: "2025", tags: 'wide, "red"',
   seller: "4611686018427387905", embedding: "0.25, -3", published_at: "2026-01-01T13:30"},
  {stock: "4"},
];
const put = (part, values) => {
  for (const input of part.querySelectorAll(FIELDS))
    input.value = values[input.getAttribute("aria-label")] ?? "";
};
put(byId("query"), {shown_at: "2026-02-01T00:00", country: "de", age: "33"});
byId("items").tBodies[0].rows[2].querySelector("button").click();
byId("items").tBodies[0].rows[0].querySelector("input").value = "mug";
filled.forEach((values, i) => put(byId("items").tBodies[0].rows[i], values));
CHANGE
byId("form").requestSubmit();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_values_of_a_set_are_read_as_they_are_written():
    page = importlib.resources.files("tfrank_sel.serving.rest") / "page.html"
    functions = re.findall(
        r"^function (?:partsOf|quoted).*?^}\n", page.read_text(encoding="utf-8"), re.M | re.S
    )
    sets = [["red", "wide"], ["red, wide", "x"], ['a"b'], ['"', ",", " a "], ["it's", "ü"], []]
    code = "".join(functions) + (
        f"const sets = {json.dumps(sets)};"
        "const texts = [...sets.map(x => x.map(quoted).join(', ')), 'a,, b ,', '5` wide, b'];"
        "console.log(JSON.stringify(texts.map(partsOf)));"
    )
    done = subprocess.run(["node", "-e", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [*sets, ["a", "b"], ["5` wide", "b"]]


def request(text):
    """The request that the page shows for curl, which must be JSON without `NaN`."""
    body = html.unescape(text.split('id="request">')[1].split("</pre>")[0]).split("'")[1]
    return json.loads(body, parse_constant=pytest.fail)


def ranking(text):
    """The items and scores that the page shows, the best first."""
    shown = re.findall(r'<td>([^<]+)</td><td class="number">(\S+)</td>', text)
    return [(item, float(score)) for item, score in shown]


def near(ranked, names):
    """What the page shows of the items that the client ranked, which have these names there."""
    return [(names[int(x.doc_id)], pytest.approx(x.score, rel=1e-5)) for x in ranked]


@of_chromium
def test_the_form_of_named_features_ranks_as_the_client_does(named_endpoint, named_model):
    port = named_endpoint.rest_port
    address = f"127.0.0.1:{named_endpoint.grpc_port}"
    with Ranker(address, manifest=named_model / "saved_model") as ranker:
        expected = ranker.rank([named.ITEM, {"stock": 4}], query=named.QUERY)

    with scripted(port, FILLED.replace("CHANGE", "")) as proxy:
        text = dom(proxy)

    assert request(text)["inputs"]["price"] == [[2.5, None]]
    assert ranking(text) == near(expected, ["mug", "item 2"])
    filled = {**named.ITEM, "price": -1.5, "stock": 7, "embedding": [1, 2]}
    with Ranker(address, manifest=named_model / "saved_model") as ranker:
        expected = ranker.rank([named.ITEM, filled], query=named.QUERY)

    values = '{...filled[0], price: "-1.5", stock: "7", embedding: "1, 2"}'
    change = f'put(byId("items").tBodies[0].rows[1], {values});'
    with scripted(port, FILLED.replace("CHANGE", change)) as proxy:
        text = dom(proxy)

    assert request(text)["inputs"]["seller"] == [[2**62 + 1] * 2]
    assert ranking(text) == near(expected, ["mug", "item 2"])

    change = 'put(byId("items").tBodies[0].rows[1], {stock: "1", embedding: "1"});'
    with scripted(port, FILLED.replace("CHANGE", change)) as proxy:
        assert "embedding must be 2 numbers. Received: 1</p>" in dom(proxy)


@of_chromium
def test_the_form_of_packed_features_ranks_lines(named_endpoint):
    lines = """
      byId("model").value = "packed";
      byId("model").dispatchEvent(new Event("change"));
      byId("features").value = "\\n1 2 3 # mug\\n \\n0,0,0\\n";
      byId("form").requestSubmit();
    """
    with scripted(named_endpoint.rest_port, lines) as proxy:
        text = dom(proxy)
    assert "<td>mug</td>" in text
    assert "<td>0,0,0</td>" in text
    assert request(text)["inputs"]["features"] == [[[1, 2, 3], [0, 0, 0]]]


ITEMS = [named.ITEM, {"stock": 4, "seller": -(2**62) - 1}]
IDS = ["mug", "cup"]
LINES = np.array([[1.5, 2.0, 3.0], [0.1, -4.0, 0.0]], np.float32)


@pytest.fixture(scope="module")
def warmed_models(tmp_path_factory):
    """Folder of a named model, and of two versions of a packed one, with warm-up requests."""
    folder = tmp_path_factory.mktemp("warmed")
    one = requests.item_list(ITEMS, named.TYPES, query=named.QUERY, doc_ids=IDS)
    values = {**typed.values(one, named.TYPES), "doc_id": one.doc_ids}
    lists = [writing.serialize_elwc(values, typed.list_features(named.TYPES, "doc_id"))]
    export.export(named.model(), named.TYPES, folder / "saved", examples=lists)
    export.publish(folder / "saved", folder / "ranker", 1)
    spec = FeatureSpec(num_features=3)
    for version, sign in ((1, 1.0), (2, -1.0)):
        last = keras.layers.Lambda(lambda x, sign=sign: sign * x[..., 1])
        packed = keras.Sequential([keras.Input([None, 3]), last])
        saved, lists = (
            folder / f"packed {version}",
            [elwc.serialize(LINES, spec, doc_ids=[b"", b"cup"])],
        )
        export.export(packed, spec, saved, examples=lists)
        export.publish(saved, folder / "packed", version)
    return folder


@pytest.fixture(scope="module")
def warmed(warmed_models):
    served = [
        ModelConfig("ranker", warmed_models / "ranker"),
        ModelConfig("packed", warmed_models / "packed", Latest(2)),
    ]
    with Endpoint(served) as endpoint:
        yield endpoint


CLICK = 'document.querySelector("#examples button").click();'
PACKED = 'byId("model").value = "packed"; byId("model").dispatchEvent(new Event("change"));'


@of_chromium
def test_the_page_opens_with_an_example_that_is_ranked(warmed, warmed_models):
    address = f"127.0.0.1:{warmed.grpc_port}"
    with Ranker(address, manifest=warmed_models / "saved") as ranker:
        expected = ranker.rank(ITEMS, query=named.QUERY)

    assert ranking(dom(warmed.rest_port)) == near(expected, IDS)


@of_chromium
def test_a_click_ranks_an_example_of_packed_features_by_two_versions(warmed):
    compared = 'showModels().then(() => { byId("compared").value = "1"; CLICK });'
    with scripted(warmed.rest_port, PACKED + compared.replace("CLICK", CLICK)) as proxy:
        text = dom(proxy)

    heads = re.findall(r"<th>(.*?)</th>", text.split('id="heads"')[1].split("</thead>")[0])
    assert heads == ["rank", "item", "version latest", "", "version 1", "", "rank there"]
    rows = re.findall(r"<tr>(.*?)</tr>", text.split('id="ranking"')[1].split("</tbody>")[0])
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in rows]
    told = [[row[0], row[1], row[2], row[4], row[6]] for row in cells]
    assert told == [
        ["1", "cup", "4.00000", "-4.00000", "2 ▼1"],
        ["2", "1.5 2 3", "-2.00000", "2.00000", "1 ▲1"],
    ]
    assert [re.search(r"width: (\d+)%", row[3])[1] for row in cells] == ["100", "1"]


PLACES = """
for (let i = 0; i < 40; i++) addItem();
const above = id => byId(id).getBoundingClientRect().top;
const cut = document.documentElement.scrollWidth > innerWidth;
const button = document.querySelector("button.first").getBoundingClientRect().top;
const isSeen = above("message") < innerHeight;
document.body.append(`places ${button < above("items")}, ${isSeen}, ${cut}.`);
"""


@of_chromium
@pytest.mark.parametrize("width", [1280, 1440])
def test_the_button_is_above_the_rows_and_the_answer_in_the_first_screen(warmed, width):
    with scripted(warmed.rest_port, PLACES) as proxy:
        assert "places true, true, false." in dom(proxy, f"--window-size={width},900")


@of_chromium
def test_a_click_explains_why_an_item_is_above_the_next(warmed):
    later = 'setTimeout(() => document.querySelector("#ranking button").click(), 3000);'
    with scripted(warmed.rest_port, PACKED + CLICK + later) as proxy:
        text = dom(proxy)

    [told] = re.findall(r'<p id="why"[^>]*>(.*?)</p>', text)
    assert told == "cup is above 1.5 2 3 by 2 +6.00"
    assert text.split('id="ranking"')[1].split("</tbody>")[0].count("Why?") == 1


@of_chromium
def test_latency_is_drawn_over_time(warmed):
    later = f"setTimeout(() => {{ {CLICK} }}, 3000);"
    with scripted(warmed.rest_port, PACKED + later) as proxy:
        rows = dom(proxy).split('id="requests"')[1].split("</tbody>")[0].split("<tr>")[1:]
    (row,) = [row for row in rows if "<td>packed</td><td>predict</td><td>REST</td>" in row]
    assert "20v-19.0h1V20" in row
    assert re.search(r"<small>at most [\d.]+ ms</small>", row)


@of_chromium
def test_the_page_fits_a_phone_in_the_dark(warmed):
    tell = """
      const [html, frame] = [document.documentElement, document.createElement("iframe")];
      if (parent === window) {
        frame.src = "/"; frame.width = 390; document.body.append(frame);
        addEventListener("message", event => document.body.append(event.data));
      } else setTimeout(() => parent.postMessage(`width ${html.scrollWidth},
        ${getComputedStyle(document.body).backgroundColor}`, "*"), 4000);
    """
    with scripted(warmed.rest_port, CLICK + tell) as proxy:
        text = dom(proxy, "--blink-settings=preferredColorScheme=0")
    width, color = re.search(r"width (\d+),\s+(rgb\(.*?\))", text).groups()
    assert (int(width) <= 390, color) == (True, "rgb(21, 24, 28)")

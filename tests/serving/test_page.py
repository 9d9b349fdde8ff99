import contextlib
import http.client
import http.server
import json
import re
import shutil
import subprocess
import threading

import pytest

from tests.serving import named
from tfrank_sel.serving.client import Ranker

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


def dom(port):
    """What a browser makes of the page."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    url = f"http://127.0.0.1:{port}/"
    command = ["chromium", *options, "--virtual-time-budget=10000", "--dump-dom", url]
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
  {price: "2.5", stock: "3", is_new: "true", brand: "acme", year: "2025", tags: "wide, red",
   seller: "4611686018427387905", embedding: "0.25, -3", published_at: "2026-01-01T13:30"},
  {stock: "4"},
];
const put = (part, values) => {
  for (const input of part.querySelectorAll("input, select"))
    input.value = values[input.getAttribute("aria-label")] ?? "";
};
put(byId("query"), {shown_at: "2026-02-01T00:00", country: "de", age: "33"});
byId("items").tBodies[0].rows[2].querySelector("button").click();
filled.forEach((values, i) => put(byId("items").tBodies[0].rows[i], values));
CHANGE
byId("form").requestSubmit();
"""


@of_chromium
def test_the_form_of_named_features_ranks_as_the_client_does(named_endpoint, named_model):
    port = named_endpoint.rest_port
    address = f"127.0.0.1:{named_endpoint.grpc_port}"
    with Ranker(address, manifest=named_model / "saved_model") as ranker:
        expected = ranker.rank([named.ITEM, {"stock": 4}], query=named.QUERY)

    with scripted(port, FILLED.replace("CHANGE", "")) as proxy:
        found = re.findall(r'<td>item (\d)</td><td class="number">(\S+)</td>', dom(proxy))

    assert [int(item) - 1 for item, _ in found] == [int(x.doc_id) for x in expected]
    for (_, shown), one in zip(found, expected, strict=True):
        assert float(shown) == pytest.approx(one.score, rel=1e-5)

    change = 'put(byId("items").tBodies[0].rows[1], {stock: "1", embedding: "1"});'
    with scripted(port, FILLED.replace("CHANGE", change)) as proxy:
        assert "embedding must be 2 numbers. Received: 1</p>" in dom(proxy)


@of_chromium
def test_the_form_of_packed_features_ranks_lines(named_endpoint):
    lines = """
      byId("model").value = "packed";
      byId("model").dispatchEvent(new Event("change"));
      byId("features").value = "1 2 3\\n0,0,0";
      byId("form").requestSubmit();
    """
    with scripted(named_endpoint.rest_port, lines) as proxy:
        text = dom(proxy)
    assert "<td>1 2 3</td>" in text
    assert "<td>0,0,0</td>" in text

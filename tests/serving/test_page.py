import http.client
import json
import shutil
import subprocess

import pytest


def page(port):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/")
    response = connection.getresponse()
    assert (response.status, response.getheader("content-type")) == (
        200,
        "text/html; charset=utf-8",
    )
    return response.read().decode()


def test_the_page_names_the_models_and_asks_nothing_from_elsewhere(endpoint):
    text = page(endpoint.rest_port)

    assert json.loads(text.split('id="names">')[1].split("</script>")[0]) == ["half"]
    assert "http:" not in text
    assert "https:" not in text


@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs Chromium")
def test_a_browser_shows_the_states_of_the_models(endpoint, client):
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    url = f"http://127.0.0.1:{endpoint.rest_port}/"
    command = ["chromium", *options, "--virtual-time-budget=10000", "--dump-dom", url]

    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout

    assert dom.count("<td>AVAILABLE</td>") == 2

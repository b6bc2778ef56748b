"""P30: nobody gets in without the token, under another Host or from another Origin; requests name no files."""

import contextlib
import http.client
import re
import socket

import pytest
from conftest import SHIPPED
from exploring import ROOT, exploring
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from saltwm.explore.server import Explorer, page_files
from saltwm.ground.errors import UsageError
from saltwm.jobs.explore import Explore


def get(running, path=None, method="GET", **headers):
    connection = http.client.HTTPConnection(running.parts.hostname, running.parts.port, timeout=60)
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, running.parts.path if path is None else path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    with contextlib.closing(connection):
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read()


def test_the_address_shows_the_page_and_forbids_inline_scripts_and_styles(running):
    status, headers, body = get(running)
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "style-src 'self';" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["referrer-policy"] == "no-referrer"
    assert b"explorer" in body


@pytest.mark.parametrize("path", ["/", "/wrong/", "/{almost}/", "//", "/app.js", "/{token}x/", "/live"])
def test_without_the_token_nothing_is_shown(running, path):
    token = running.parts.path.strip("/")
    status, _, body = get(running, path.format(almost=token[:-1], token=token))
    assert status == 403
    assert token.encode() not in body


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "127.0.0.1:{port}.evil.example"]
)
def test_dns_rebinding_another_host_is_refused(running, host):
    assert get(running, Host=host.format(port=running.parts.port))[0] == 403


def test_localhost_is_this_machine_too(running):
    assert get(running, Host=f"localhost:{running.parts.port}")[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1"])
def test_cross_site_requests_are_refused(running, origin):
    assert get(running, Origin=origin)[0] == 403
    with pytest.raises(InvalidStatus), running.page(origin=origin):
        pass


def test_a_socket_without_an_origin_is_refused(running):
    with pytest.raises(InvalidStatus), running.page(origin=None):
        pass


def test_a_script_of_another_site_is_refused_and_a_followed_link_is_not(running):
    assert get(running, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors", Sec_Fetch_Dest="script")[0] == 403
    assert get(running, Sec_Fetch_Site="same-site", Sec_Fetch_Mode="cors", Sec_Fetch_Dest="empty")[0] == 403
    assert get(running, Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate", Sec_Fetch_Dest="document")[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_only_reading_is_allowed(running, method):
    assert get(running, method=method)[0] == 403


OUTSIDE = """
../server.py %2e%2e/server.py ..%2fserver.py ....//server.py /etc/passwd %2fetc%2fpasswd app.js/../../server.py
app.js%00 ..\\server.py __init__.py
"""


@pytest.mark.parametrize("name", OUTSIDE.split())
def test_requests_name_no_files(running, name):
    status, _, body = get(running, running.parts.path + name)
    assert status in (403, 404)
    assert b"import" not in body
    assert b"root:" not in body


def test_pages_hold_no_inline_script_style_or_foreign_address():
    files = page_files()
    index = files["index.html"].decode()
    assert not re.search(r"<style|style=|\son\w+=|javascript:", index)
    assert re.findall(r"<script[^>]*>", index) == ['<script type="module" src="./app.js">']
    for name, text in files.items():
        found = set(re.findall(rb"https?://[^\s\"'`)]+", text)) - {b"http://www.w3.org/2000/svg"}
        assert not found, name
        assert b"innerHTML" not in text, name
        assert b"eval(" not in text, name


def test_a_seventh_page_is_turned_away_and_says_why(running):
    from contextlib import ExitStack

    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(running.page())
        with running.page() as seventh, pytest.raises(ConnectionClosed, match="pages are open"):
            seventh.socket.recv(timeout=20)
    with running.page() as page:
        assert "models" in page.ask("catalogue").header


def test_another_host_than_loopback_is_refused_and_says_why():
    with pytest.raises(UsageError, match="--i-know"):
        Explore((str(ROOT / "checkpoints/two-room-salt"),), host="0.0.0.0", browser=False).do()


def test_who_listens_everywhere_is_called_by_its_own_names_and_by_given_ones_alone():
    given = ("--host", "0.0.0.0", "--i-know", "--name", "localhost", "box.example", "published:9000")
    with exploring(SHIPPED[2], *given) as server:
        port = server.parts.port
        ours = (f"localhost:{port}", f"127.0.0.1:{port}", f"{socket.gethostname()}:{port}")
        for host in (*ours, f"Box.Example:{port}", "published:9000"):
            assert get(server, Host=host)[0] == 200
            line = socket.create_connection(("127.0.0.1", port))
            with connect(f"ws://{host}{server.parts.path}live", sock=line, origin=f"http://{host}".lower()) as page:
                page.ping()
        for host in (f"evil.example:{port}", f"0.0.0.0:{port}", "box.example", f"published:{port}", "localhost:9000"):
            assert get(server, Host=host)[0] == 403
        assert get(server, Host=ours[0], Origin=f"http://evil.example:{port}")[0] == 403


@pytest.mark.parametrize(
    ("host", "names", "address"),
    [
        ("127.0.0.1", (), "http://127.0.0.1:8000/"),
        ("::1", (), "http://[::1]:8000/"),
        ("0.0.0.0", (), "http://localhost:8000/"),
        ("::", ("box",), "http://box:8000/"),
        ("::", ("fe80::1", "box"), "http://[fe80::1]:8000/"),
        ("::", ("box:80",), "http://box/"),
    ],
)
def test_the_printed_address_is_one_that_a_browser_gets_in_by(host, names, address):
    explorer = Explorer([], port=8000, host=host, names=names)
    assert explorer.address == f"{address}{explorer.token}/"
    assert explorer.address.split("/")[2] in explorer.hosts


@pytest.mark.parametrize("name", ["*", "", "a b", "box; script-src *", "http://box", "box:port", "box:8000/x"])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(UsageError, match="`name`: expected a host"):
        Explorer([], port=8000, names=(name,))

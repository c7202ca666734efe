"""Attacks on the web application: strangers on the machine and in the browser, foreign pages, and hostile names."""

import contextlib
import json
import re
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError
from multicentre.estimator.registry import METHODS
from multicentre.privacy.ledger import Ledger
from multicentre.studies import read_study, run_study
from multicentre_sites.deployment.approvals import read_approvals
from multicentre_sites.deployment.proposed_files import FOLDER, read_proposed
from multicentre_sites.deployment.site_folder import read_site
from multicentre_sites.serve import door
from multicentre_sites.serve.door import HEADERS, Access
from multicentre_sites.serve.forms import LARGEST, parse_form
from support.asgi_client import Client, hidden_fields
from support.examples import examples
from support.steward_pages import PORT, client_of, make_lyon, stranger_of
from support.studies_toy import STUDY, TOY, write_study

HOSTILE = '"><script>alert(1)</script>\u202e{{ 7 * 7 }}'


@pytest.fixture(autouse=True)
def _toy(monkeypatch):
    monkeypatch.setitem(METHODS, "toy", TOY)


@pytest.fixture
def folder(tmp_path):
    return make_lyon(tmp_path)


@pytest.fixture
def stranger(folder):
    """A client without a session."""
    return stranger_of(folder)


@pytest.fixture
def client(stranger):
    stranger.enter()
    return stranger


def pages_of(client):
    return [route.path for route in client.application._application.routes if "GET" in route.methods]


def forms_of(client):
    return [route.path for route in client.application._application.routes if "POST" in route.methods]


def test_without_the_cookie_no_page_is_shown(stranger):
    for path in pages_of(stranger):
        answer = stranger.get(path.lstrip("/"))
        assert answer.status == 403, path
        assert "lyon" not in answer.text
    assert len(pages_of(stranger)) > 8


def test_without_the_random_path_nothing_answers(client):
    for path in ("/", "/studies", "/enter", "/style.css", f"/{'A' * 43}/", f"//{client.access.area}/"):
        assert client.request("GET", path).status == 404, path


@pytest.mark.parametrize("token", ["", "x", "0" * 43, "%00", "é"])
def test_a_wrong_token_gives_no_cookie(stranger, token):
    answer = stranger.get(f"enter?token={quote(token)}")
    assert answer.status == 403
    assert answer.header("set-cookie") == ""
    assert stranger.access.sessions == {}


def test_secrets_are_random_and_long(folder):
    first, second = Access(PORT), Access(PORT)
    for one, other in ((first.token, second.token), (first.area, second.area)):
        assert one != other
        assert len(one) >= 43  # 256 bits in base64
    assert first.enter(first.token) != first.enter(first.token)


def test_the_cookie_is_out_of_reach_of_scripts_other_sites_and_other_ports(stranger):
    line = stranger.enter().header("set-cookie")
    attributes = {part.strip().lower() for part in line.split(";")[1:]}
    assert {"httponly", "samesite=strict", f"path=/{stranger.access.area.lower()}/"} <= attributes
    assert not any(part.startswith("domain") for part in attributes)
    assert stranger.access.token not in line


def test_a_stolen_cookie_of_another_process_or_after_leaving_is_worth_nothing(client):
    stolen = dict(client.cookies)
    client.post("leave", ())
    client.cookies = stolen
    assert client.get().status == 403


def test_an_idle_session_ends(client, monkeypatch):
    assert client.get().status == 200
    monkeypatch.setattr(door, "_IDLE_S", -1.0)
    assert client.get().status == 403


def test_the_oldest_of_many_sessions_ends(folder):
    access = Access(PORT)
    names = [access.enter(access.token) for _ in range(20)]
    assert len(access.sessions) == 8
    assert access.session(names[0]) is None
    assert access.session(names[-1]) is not None


HOSTS = ("evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}", "")


@pytest.mark.parametrize("host", [*HOSTS, f"localhost:{PORT}", f"127.0.0.1:{PORT}@evil.example", f"[::1]:{PORT}"])
def test_a_foreign_host_name_is_refused(client, host):
    assert client.get(host=host).status == 421
    assert client.request("GET", f"/{client.access.area}/enter?token={client.access.token}", host=host).status == 421


def test_two_host_headers_are_refused(client):
    application, answer = client.application, []

    async def send(message):
        answer.append(message)

    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    host = (b"host", client.access.host.encode())
    headers = [host, host, (b"cookie", b"x=1")]
    scope = {
        "type": "http",
        "method": "GET",
        "path": f"/{client.access.area}/",
        "query_string": b"",
        "headers": headers,
    }
    import asyncio

    asyncio.run(application(scope, receive, send))
    assert answer[0]["status"] == 421


def test_forms_of_foreign_pages_are_refused(client, folder, tmp_path):
    page = client.upload(write_study(tmp_path).read_bytes())
    fields = [*hidden_fields(page.text, "approve"), ("confirmed", "yes")]
    token = client.token()
    foreign = [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": None},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ]
    for headers in foreign:
        assert client.post("approve", fields, token=token, headers=headers).status == 403, headers
    assert not (folder / "approved").exists()


def test_every_form_needs_the_token_of_its_own_session(client, folder, tmp_path):
    page = client.upload(write_study(tmp_path).read_bytes())
    fields = [*hidden_fields(page.text, "approve"), ("confirmed", "yes")]
    other = Client(client.application, client.access)
    other.enter()
    assert len(forms_of(client)) == 6
    for form in forms_of(client):
        for token in ("", "wrong", other.token(), client.access.token):
            answer = client.post(form.lstrip("/"), [*fields, ("reason", "no")], token=token)
            assert answer.status == 403, form
        twice = [*fields, ("form_token", client.token())]
        assert client.post(form.lstrip("/"), twice).status == 403
    assert not (folder / "approved").exists()
    assert len(read_proposed(read_site(folder))) == 1
    assert client.get().status == 200


def test_reading_a_page_changes_nothing(client, folder, tmp_path):
    page = client.upload(write_study(tmp_path).read_bytes())
    fields = dict([*hidden_fields(page.text, "approve"), ("confirmed", "yes"), ("form_token", client.token())])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    query = "&".join(f"{name}={quote(value)}" for name, value in fields.items())
    for form in forms_of(client):
        client.get(f"{form.lstrip('/')}?{query}")
    for path in pages_of(client):
        client.get(f"{path.lstrip('/')}?{query}&name=Ward+7")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "CONNECT"])
def test_other_methods_are_refused(client, method):
    assert client.request(method, f"/{client.access.area}/studies").status == 405


def test_every_answer_has_the_security_headers(client):
    answers = [client.get(path.lstrip("/")) for path in pages_of(client)]
    answers += [client.get("nothing"), client.get(host="evil.example"), client.request("GET", "/"), client.enter()]
    assert {answer.status for answer in answers} >= {200, 303, 400, 404, 421}
    for answer in answers:
        for name, value in HEADERS.items():
            assert answer.header(name) == value
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src" not in policy
    assert "unsafe" not in policy


def test_pages_have_no_script_no_inline_style_and_no_foreign_address(client, folder, tmp_path):
    client.upload(write_study(tmp_path).read_bytes())
    sha256 = read_proposed(read_site(folder))[0].sha256
    for path in (*pages_of(client), f"/proposal?sha256={sha256}"):
        text = client.get(path.lstrip("/")).text
        assert not re.search(r"<script|<style|<iframe|<object|<embed|\son\w+=|\sstyle=|javascript:|https?://", text), (
            path
        )
    sheet = client.get("style.css")
    assert sheet.header("content-type").startswith("text/css")
    assert not re.search(r"url\(|@import|https?:", sheet.text)


PATHS = [
    "../site.toml",
    "../../etc/passwd",
    "..%2f..%2fsite.toml",
    "%2e%2e/keys/identity",
    "static/../../keys/identity",
    "keys/identity",
    "style.css/../../site.toml",
    "....//site.toml",
]


@pytest.mark.parametrize("path", PATHS)
def test_no_path_leads_to_a_file(client, folder, path):
    answer = client.get(path)
    assert answer.status == 404
    secret = (folder / "keys" / "identity").read_text().split()[3]
    assert secret not in answer.text


NAMES = ["../keys/identity", "/etc/passwd", "..", "", "lyon.site.toml", "\x00", "a" * 5000, "%2e%2e/site.toml"]


@pytest.mark.parametrize("name", NAMES)
def test_names_in_requests_are_never_paths(client, folder, name):
    for page in ("study", "ledger", "revoke", "proposal"):
        for key in ("name", "sha256", "analyst", "page"):
            answer = client.get(f"{page}?{key}={quote(name)}")
            assert answer.status == 400, (page, key)
            assert "PRIVATE KEY" not in answer.text
            assert "root:" not in answer.text


@pytest.mark.slow
@pytest.mark.parametrize("name", [*NAMES, "other"])
def test_runs_outside_the_folder_are_not_served(tmp_path, name):
    study = read_study(write_study(tmp_path / "elsewhere", STUDY + "\n[run]\ncompare = false\n"))
    run = run_study(study.with_output(tmp_path / "elsewhere" / "runs"))
    (tmp_path / "served").mkdir()
    client = client_of(tmp_path / "served")
    for page in ("run", "report", "ledger", "study"):
        for place in (name, f"../elsewhere/runs/{run.path.name}", str(run.path)):
            assert client.get(f"{page}?name={quote(place)}&site=lyon").status == 400
            assert client.get(f"{page}?run={quote(place)}").status == 400


def test_a_report_runs_in_a_sandbox_and_a_link_is_not_followed(tmp_path):
    run = run_study(
        read_study(write_study(tmp_path, STUDY + "\n[run]\ncompare = false\n")).with_output(tmp_path / "runs")
    )
    client = client_of(tmp_path)
    page = f"report?name={quote('runs/' + run.path.name)}"
    (run.path / "report.html").write_text("<script>alert(1)</script>")
    answer = client.get(page)
    assert answer.status == 200
    policy = answer.header("content-security-policy")
    assert policy.startswith("sandbox; default-src 'none'")
    assert "script" not in policy
    (tmp_path / "secret").write_text("secret")
    (run.path / "report.html").unlink()
    (run.path / "report.html").symlink_to(tmp_path / "secret")
    assert client.get(page).status == 400


def test_hostile_names_and_reasons_are_texts(client, folder, tmp_path):
    text = STUDY.replace('name = "Ward 7"', f"name = {json.dumps(HOSTILE)}")
    page = client.upload(write_study(tmp_path, text).read_bytes())
    site = read_site(folder)
    ledger = Ledger(site.ledger_of(HOSTILE), signer=site.identity, study=HOSTILE)
    ledger.append("refusal", {"method": HOSTILE, "step": HOSTILE, "reason": HOSTILE})
    client.post("approve", [*hidden_fields(page.text, "approve"), ("confirmed", "yes")])
    assert HOSTILE in read_approvals(folder / "approved").studies
    query = f"name={quote(HOSTILE)}"
    answers = [page, *(client.get(one) for one in ("studies", "approvals", "ledgers", "budgets"))]
    answers += [client.get(f"{one}?{query}") for one in ("study", "ledger", "revoke")]
    answers.append(client.get(f"study?name={quote(HOSTILE + 'x')}"))
    assert sum("alert(1)" in answer.text for answer in answers) >= 8
    for answer in answers:
        assert "<script" not in answer.text
        assert "\u202e" not in answer.text
        assert "{{ 7" in answer.text or "alert" not in answer.text
        assert " 49 " not in answer.words


def test_a_hostile_reason_is_a_text_or_refused(client, folder, tmp_path):
    page = client.upload(write_study(tmp_path).read_bytes())
    refused = client.post("reject", [*hidden_fields(page.text, "reject"), ("reason", HOSTILE)])
    assert refused.status == 400
    assert not (folder / "approved").exists()
    printable = HOSTILE.replace("\u202e", "")
    client.post("reject", [*hidden_fields(refused.text, "reject"), ("reason", printable)])
    assert read_approvals(folder / "approved").rejections[0].reason == printable
    again = client.upload(write_study(tmp_path / "again").read_bytes())
    answers = [refused, again, client.get("studies"), client.get("approvals")]
    assert all("alert(1)" in answer.text for answer in answers)
    for answer in answers:
        assert "<script" not in answer.text
        assert "\u202e" not in answer.text
        assert " 49 " not in answer.words


def test_a_large_form_is_refused(client, folder):
    answer = client.upload(b"#" * (LARGEST + 1))
    assert answer.status in (400, 403)
    assert not (folder / FOLDER).exists() or list((folder / FOLDER).iterdir()) == []


def test_the_name_of_an_uploaded_file_is_not_used(client, folder, tmp_path):
    client.upload(write_study(tmp_path).read_bytes(), name="../../evil.toml")
    assert [len(path.stem) for path in (folder / FOLDER).iterdir()] == [64]
    assert not list(tmp_path.rglob("evil*"))


def test_pages_show_no_value_of_a_patient(tmp_path):
    """The pages of a finished run contain no entry of the data files."""
    run = run_study(
        read_study(write_study(tmp_path, STUDY + "\n[run]\ncompare = false\n")).with_output(tmp_path / "runs")
    )
    client = client_of(tmp_path)
    name = quote(f"runs/{run.path.name}")
    pages = ["", "studies", "ledgers", "budgets", f"run?name={name}", f"study?run={name}", "study?name=study.toml"]
    pages += [f"ledger?name={name}&site={site}" for site in ("lyon", "oslo", "porto")]
    text = ""
    for page in pages:
        answer = client.get(page)
        assert answer.status == 200, page
        text += answer.text
    assert "residuals" in text
    values = {
        cell
        for path in tmp_path.glob("site-*/*.csv")
        for line in path.read_text().splitlines()[1:]
        for cell in line.split(",")
        if len(cell) > 8
    }
    assert len(values) > 100
    assert not [value for value in values if value in text]


def test_pages_of_a_site_read_no_data(client, folder, tmp_path):
    """Pages are computed from settings, approvals and ledgers: they are the same without the data files."""
    page = client.upload(write_study(tmp_path).read_bytes())
    client.post("approve", [*hidden_fields(page.text, "approve"), ("confirmed", "yes")])
    paths = [path.lstrip("/") for path in pages_of(client)] + ["study?name=Ward+7"]
    before = [(answer.status, answer.text) for answer in map(client.get, paths)]
    for path in tmp_path.glob("site-*/*.csv"):
        path.unlink()
    assert [(answer.status, answer.text) for answer in map(client.get, paths)] == before
    assert before[-1][0] == 200


def test_two_cookies_of_one_name_are_refused(client):
    name, (value, _) = next(iter(client.cookies.items()))
    client.cookies = {}
    for line in (f"{name}=x; {name}={value}", f"{name}={value}; {name}={value}", f"{name}=", "garbage; =;"):
        assert client.get(headers={"cookie": line}).status == 403
    assert client.get(headers={"cookie": f"other=1; {name}={value}"}).status == 200


@examples(60)
@given(st.dictionaries(st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.binary(max_size=200), max_size=5), st.binary())
def test_forms_of_files_are_read_byte_by_byte(files, noise):
    boundary = "----x9"
    if any(boundary.encode() in content for content in files.values()):
        return
    body = b"".join(
        b'--%b\r\nContent-Disposition: form-data; name="%b"; filename="f"\r\n\r\n%b\r\n'
        % (boundary.encode(), name.encode(), content)
        for name, content in files.items()
    )
    kind = f"multipart/form-data; boundary={boundary}"
    if files:
        assert parse_form(kind, body + b"--" + boundary.encode() + b"--\r\n").files == files
    for damaged in (noise, body[:-3], body + noise):
        with contextlib.suppress(ConfigurationError):
            assert set(parse_form(kind, damaged).files) <= {*files, *re.findall(r'name="([^"]*)"', repr(damaged))}


@pytest.mark.parametrize(
    "kind", ["", "text/plain", "application/json", "multipart/form-data", "multipart/form-data; b"]
)
def test_forms_of_other_types_are_refused(kind):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        parse_form(kind, b'{"form_token": "x"}')


def test_the_printed_address_leads_to_loopback_only():
    address = urlsplit(Access(PORT).address)
    assert address.hostname == "127.0.0.1"
    assert address.port == PORT

"""``multicentre serve`` in Chromium: a steward approves by keyboard alone, on a screen and on a telephone."""

import http.server
import os
import re
import select
import socketserver
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import ClassVar

import pytest

from multicentre.studies import RunFolder
from multicentre_sites.deployment.approvals import read_approvals
from multicentre_sites.deployment.new_site_folder import make_site
from multicentre_sites.deployment.proposed_files import FOLDER
from support.browser import CHROMIUM, GENEROUS_S, Browser
from support.several_analyses import BLOCKS, DATA, write_patients

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed"),
]
pytest.importorskip("websockets", reason="websockets (a dependency of the test tools) is not installed")

ENTER_ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/[\w-]+/enter\?token=[\w-]+")
# Ratio of luminances of two colours, as WCAG 2.2 defines it, for every element with a text.
CONTRASTS = """
(() => {
  const rgb = text => (text.match(/[\\d.]+/g) || []).map(Number);
  const f = c => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => { return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const ground = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length == 3 || c[3] > 0) return c; } return [255, 255, 255]; };
  const texts = [...document.querySelectorAll("body *")].filter(e =>
    [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim()) && e.getBoundingClientRect().width > 0);
  const ratios = texts.map(e => { const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground(e))].sort();
    return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), e.tagName + " " + e.textContent.trim().slice(0, 40)]; });
  return ratios.sort((x, y) => x[0] - y[0])[0];
})()
"""
UNLABELLED = """
[...document.querySelectorAll("input:not([type=hidden]), textarea, meter")].filter(e => !e.labels || !e.labels.length)
  .map(e => e.outerHTML)
"""
OUTLINE = (
    "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth"
)


def write_study(folder):
    sites = write_patients(folder)
    path = folder / "study.toml"
    path.write_text(f'[study]\nname = "hips"\noutput = "{folder / "runs"}"\n{DATA}{BLOCKS}{sites}', encoding="utf-8")
    return path


@pytest.fixture
def serve():
    processes = []

    def start(folder):
        process = subprocess.Popen(
            [sys.executable, "-m", "multicentre", "serve", str(folder)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        processes.append(process)
        assert select.select([process.stdout], [], [], GENEROUS_S)[0]
        return ENTER_ADDRESS.search(process.stdout.readline())[0]

    yield start
    for process in processes:
        process.terminate()
        process.wait(GENEROUS_S)
        process.stdout.close()


@pytest.fixture
def browser(tmp_path):
    browser = Browser(tmp_path / "browser")
    yield browser
    browser.close()


@pytest.fixture
def folder(tmp_path):
    make_site("lyon", tmp_path / "lyon", "127.0.0.1:1")
    (tmp_path / "lyon" / FOLDER).mkdir()
    (tmp_path / "lyon" / FOLDER / "hips.toml").write_bytes(write_study(tmp_path).read_bytes())
    return tmp_path / "lyon"


def check_page(browser, address):
    """Check the present page: no overflow, contrast, labels, one heading, no request elsewhere."""
    width = browser.value("document.documentElement.clientWidth")
    assert browser.value("document.documentElement.scrollWidth") <= width, browser.value("location.pathname")
    ratio, text = browser.value(CONTRASTS)
    assert ratio >= 4.5, text
    assert browser.value(UNLABELLED) == []
    assert browser.value("document.querySelectorAll('h1').length") == 1
    assert browser.value("document.querySelector('html').lang") == "en-GB"
    assert browser.value("document.querySelectorAll('script').length") == 0
    origin = "/".join(address.split("/")[:3])
    assert [url for url in browser.requested if not url.startswith((f"{origin}/", "about:blank"))] == []


@pytest.mark.parametrize(("width", "dark"), [(400, True)])
def test_a_steward_approves_a_study_by_keyboard_alone(folder, serve, browser, tmp_path, width, dark):
    address = serve(folder)
    browser.set_size(width, dark=dark)
    browser.open(address)
    assert "token" not in browser.value("location.href")
    check_page(browser, address)
    browser.press("Tab")
    assert browser.value("document.activeElement.innerText") == "Skip to the content"
    browser.tab_to("Studies")
    assert browser.value(OUTLINE) == "solid3px"
    browser.follow("Enter")
    check_page(browser, address)
    browser.tab_to("study hips")
    browser.follow("Enter")
    check_page(browser, address)
    if pictures := os.environ.get("MULTICENTRE_PICTURES"):
        browser.picture(Path(pictures) / f"proposal-{width}.png")
    text = browser.value("document.body.innerText")
    assert "Variables that it uses" in text
    if width == 1280:  # what is asked of the hospital is on the first screen of a small laptop
        assert browser.value("document.querySelector('.brief').getBoundingClientRect().bottom") <= 720
    assert "What may leave" in text
    browser.tab_to("All ")
    browser.press(" ")
    assert "Every field that would leave" in browser.value("document.body.innerText")
    browser.tab_to("I have read what the study asks for")
    browser.press(" ")
    assert browser.value("document.activeElement.checked")
    assert not (folder / "approved").exists()
    browser.tab_to("Approve")
    browser.follow("Enter")
    assert "Study hips" in browser.value("document.querySelector('h1').innerText")
    assert "hips" in read_approvals(folder / "approved").studies
    check_page(browser, address)
    for page in ("approvals", "ledgers", "budgets", "studies"):
        browser.open(f"{'/'.join(address.split('/')[:4])}/{page}")
        check_page(browser, address)
    assert browser.value("document.cookie") == ""


@pytest.mark.parametrize(("width", "dark"), [(1280, False)])
def test_a_steward_rejects_a_study_by_keyboard_alone(folder, serve, browser, width, dark):
    address = serve(folder)
    browser.set_size(width, dark=dark)
    browser.open(address)
    browser.tab_to("Studies")
    browser.follow("Enter")
    browser.tab_to("study hips")
    browser.follow("Enter")
    browser.tab_to("Reason for a rejection")
    assert browser.value(OUTLINE) == "solid3px"
    browser.write("The follow-up of our registry ends in 2019. Please ask again with the outcome at one year.")
    if pictures := os.environ.get("MULTICENTRE_PICTURES"):
        browser.picture(Path(pictures) / f"rejection-{width}.png")
    browser.tab_to("Reject")
    browser.follow("Enter")
    check_page(browser, address)
    assert "The follow-up of our registry ends in 2019." in browser.value("document.body.innerText")
    assert [one.study for one in read_approvals(folder / "approved").rejections] == ["hips"]
    if pictures:
        browser.picture(Path(pictures) / f"rejected-{width}.png")
    browser.open(f"{'/'.join(address.split('/')[:4])}/approvals")
    check_page(browser, address)


def test_the_browser_refuses_an_unconfirmed_form(folder, serve, browser):
    browser.open(serve(folder))
    browser.set_size(1280)
    browser.tab_to("Studies")
    browser.follow("Enter")
    browser.tab_to("study hips")
    browser.follow("Enter")
    browser.tab_to("Approve")
    browser.press("Enter")
    time.sleep(0.5)
    assert browser.value("document.activeElement.id") == "confirmed"
    assert not (folder / "approved").exists()


class Other(http.server.BaseHTTPRequestHandler):
    """Another program on this machine: it notes the cookies that it receives, and attacks a form."""

    cookies: ClassVar[list] = []
    page = ""

    def do_GET(self):
        self.cookies.append(self.headers.get("cookie"))
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(self.page.encode())

    def log_message(self, *arguments):
        pass


@pytest.fixture
def other():
    Other.cookies, Other.page = [], ""
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Other) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_another_port_gets_no_cookie_and_can_neither_frame_nor_post(folder, serve, browser, other):
    address = serve(folder)
    browser.open(address)
    area = "/".join(address.split("/")[:4])
    browser.open(f"{area}/studies")
    assert "study hips" in browser.value("document.body.innerText")
    Other.page = (
        f'<iframe id="f" src="{area}/studies"></iframe>'
        f'<form id="p" method="post" action="{area}/leave"><input name="form_token" value="x"></form>'
    )
    browser.open(other)
    assert Other.cookies
    assert set(Other.cookies) == {None}, "the cookie of the session reached another port"
    assert browser.value("(() => { try { return f.contentDocument.body.innerText } catch { return null } })()") in (
        None,
        "",
    )
    with browser.loading():
        browser.value("p.submit()")
    assert "must come from a page of this application" in browser.value("document.body.innerText")
    browser.open(f"{area}/studies")
    assert "study hips" in browser.value("document.body.innerText"), "the session goes on"


def test_pages_of_a_run_are_read_on_a_telephone(tmp_path, serve, browser):
    path = write_study(tmp_path)
    command = [sys.executable, "-m", "multicentre", "run", str(path)]
    subprocess.run(command, check=True, capture_output=True, cwd=tmp_path)
    (run,) = (tmp_path / "runs").iterdir()
    address = serve(tmp_path)
    browser.open(address)
    area = "/".join(address.split("/")[:4])
    for width, dark in ((1280, True), (400, False)):
        browser.set_size(width, dark=dark)
        for page in ("", "studies", "study?name=study.toml", f"run?name=runs/{run.name}", "ledgers", "budgets"):
            browser.open(f"{area}/{page}")
            check_page(browser, address)
            if pictures := os.environ.get("MULTICENTRE_PICTURES"):
                browser.picture(Path(pictures) / f"{page.partition('?')[0] or 'runs'}-{width}.png")
    browser.open(f"{area}/ledger?name=runs/{run.name}&site=lyon")
    check_page(browser, address)
    browser.open(f"{area}/report?name=runs/{run.name}")
    assert RunFolder.open(run).metadata["study"] in browser.value("document.body.innerText")
    assert [
        url for url in browser.requested if "127.0.0.1" not in url and not url.startswith(("about:", "data:"))
    ] == []

"""The report in Chromium: nothing wider than a telephone, nothing loaded, tables that keep their header in print."""

import html
import json
import re
import shutil
import subprocess

import pytest

from multicentre.reports import render_report
from support.pages_in_chromium import CHROMIUM, noted_requests, run_chromium
from support.report_samples import write_run

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
# Measures the page in a frame, because a window cannot be as narrow as a telephone.
MEASURE = """
<!DOCTYPE html><body style="margin:0"><iframe id="frame" style="border:0;width:%dpx;height:900px" srcdoc="%s"></iframe>
<pre id="measured"></pre><script>
window.onload = () => {
  const frame = document.getElementById("frame"), page = frame.contentDocument, root = page.documentElement;
  const shown = [...page.querySelectorAll("svg")].filter(one => one.getBoundingClientRect().width > 0);
  const texts = shown.flatMap(one => [...one.querySelectorAll("text")]
    .map(text => parseFloat(getComputedStyle(text).fontSize) * one.getBoundingClientRect().width
      / one.viewBox.baseVal.width));
  document.getElementById("measured").textContent = JSON.stringify({
    width: root.clientWidth, content: root.scrollWidth, drawings: shown.length, smallest: Math.min(...texts),
    cards: [...page.querySelectorAll("table.cards tbody tr")].filter(row =>
      frame.contentWindow.getComputedStyle(row).display == "block").length,
  });
};
</script></body>
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed"),
]


@pytest.fixture
def requests():
    with noted_requests() as noted:
        yield noted


def measure(folder, page, width, proxy):
    """Return the widths, drawings and cards of a page in a frame of a width."""
    (folder / "frame.html").write_text(MEASURE % (width, html.escape(page)), encoding="utf-8")
    address = (folder / "frame.html").as_uri()
    output = run_chromium(folder, f"--proxy-server={proxy}", "--virtual-time-budget=4000", "--dump-dom", address)
    return json.loads(html.unescape(re.search(r'<pre id="measured">([^<]*)</pre>', output)[1]))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    # Without its policy, the page could load what it names.
    return POLICY.sub("", render_report(write_run(tmp_path_factory.mktemp("run"))))


def test_page_is_no_wider_than_a_telephone_and_its_figures_are_legible(page, tmp_path, requests):
    asked, proxy = requests
    measured = measure(tmp_path, page, 400, proxy)
    assert (measured["width"], measured["content"]) == (400, 400)
    assert measured["drawings"] == 8
    assert measured["smallest"] > 7
    assert measured["cards"] > 20
    assert asked == []


def test_page_on_a_desk_has_tables_and_loads_nothing(page, tmp_path, requests):
    asked, proxy = requests
    measured = measure(tmp_path, page, 1280, proxy)
    assert (measured["content"], measured["drawings"], measured["cards"]) == (1280, 8, 0)
    assert asked == []


def test_measurements_notice_a_wide_page_and_requests(tmp_path, requests):
    asked, proxy = requests
    links = '<img src="http://elsewhere.example/a.png"><link rel="stylesheet" href="https://elsewhere.example/b.css">'
    page = f'<!DOCTYPE html><svg viewBox="0 0 9 9"><text>a</text></svg><p style="width: 700px">{links}'
    assert measure(tmp_path, page, 400, proxy)["content"] >= 700
    assert {"http://elsewhere.example/a.png", "elsewhere.example:443"} <= set(asked)


@pytest.mark.skipif(not shutil.which("pdftotext"), reason="pdftotext is not installed")
def test_printed_tables_repeat_their_header_and_the_annex_of_sites_is_folded(page, tmp_path):
    source = tmp_path / "page.html"
    source.write_text(page, encoding="utf-8")
    run_chromium(tmp_path, "--no-pdf-header-footer", f"--print-to-pdf={tmp_path / 'page.pdf'}", source.as_uri())
    command = ["pdftotext", "-layout", str(tmp_path / "page.pdf"), "-"]
    pages = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\f")
    keys = [number for number, text in enumerate(pages) if "parameters.n_rounds" in text or "sites.quorum" in text]
    assert all(re.search(r"Key\s+Value", pages[number]) for number in keys)
    assert keys
    whole = "".join(pages)
    assert "Every field that left a site" in whole
    assert "Every released field, as the sites' ledgers hold it" not in whole

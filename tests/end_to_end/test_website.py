"""The documentation's website: built without a warning, whole, searchable from files, and loaded from nowhere else."""

import html
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from support.pages_in_chromium import CHROMIUM, noted_requests, run_chromium

ROOT = Path(__file__).parents[2]
TOOLS = ("sphinx", "myst_nb", "pydata_sphinx_theme", "sphinx_copybutton", "numpydoc")
ABSENT = [name for name in TOOLS if importlib.util.find_spec(name) is None]
# Attributes by which an element loads a file as soon as the page is opened.
LOADING = {
    "link": "href",
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "object": "data",
}
# Opens each page in a frame, because a window cannot be as narrow as a telephone, and notes its widths.
MEASURE = """
<!DOCTYPE html><body style="margin:0"><iframe id="frame" style="border:0;width:%dpx;height:900px"></iframe>
<pre id="measured"></pre><script>
const pages = %s, widths = {}, frame = document.getElementById("frame");
function next() {
  const page = pages.shift();
  if (!page) { document.getElementById("measured").textContent = JSON.stringify(widths); return; }
  frame.onload = () => {
    const root = frame.contentDocument.documentElement;
    widths[page] = [root.clientWidth, root.scrollWidth];
    next();
  };
  frame.src = page;
}
next();
</script></body>
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(ABSENT), reason=f"not installed: {', '.join(ABSENT)} (make docs installs them)"),
]
needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="Chromium is not installed")


class Elements(HTMLParser):
    """Collects the identifiers of a page, its links, and the files that it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.identifiers: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        values = {name: value or "" for name, value in attributes}
        self.identifiers |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in LOADING and LOADING[tag] in values and values.get("rel") not in ("search", "next", "prev"):
            self.loaded.append(values[LOADING[tag]])


@cache
def elements(path: Path) -> Elements:
    return Elements(path.read_text(encoding="utf-8"))


def broken_links(page: Path) -> list[str]:
    """Return the links and loaded files of a page that lead to no file, or to no place of one."""
    broken = []
    for link in [*elements(page).links, *elements(page).loaded]:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        if not target.is_file() or (
            parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in elements(target).identifiers
        ):
            broken.append(link)
    return broken


def external(page: Path) -> list[str]:
    """Return what a page loads from other addresses."""
    return [
        address for address in elements(page).loaded if urlsplit(address).netloc or urlsplit(address).scheme == "http"
    ]


def measure(folder: Path, pages: list[Path], width: int) -> dict[str, list[int]]:
    """Return the widths of window and content of pages in a frame of a width."""
    addresses = [page.as_uri() for page in pages]
    harness = folder / "frame.html"
    harness.write_text(MEASURE % (width, json.dumps(addresses)), encoding="utf-8")
    options = ["--allow-file-access-from-files", "--virtual-time-budget=1000000", "--dump-dom"]
    output = run_chromium(folder, *options, harness.as_uri(), timeout=600)
    return json.loads(html.unescape(re.search(r'<pre id="measured">([^<]*)</pre>', output)[1]))


@pytest.fixture(scope="module")
def website() -> Path:
    run = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "build.py")], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return ROOT / "build" / "docs"


@pytest.fixture(scope="module")
def pages(website) -> list[Path]:
    return sorted(page for page in website.rglob("*.html") if "_static" not in page.parts)


def test_the_address_of_the_folder_leads_to_the_start_page(website):
    assert 'url=docs/index.html"' in (website / "index.html").read_text(encoding="utf-8")
    assert (website / "docs" / "index.html").is_file()


def test_every_public_name_has_a_page(website):
    packages = [
        module.parent.name
        for module in (ROOT / "src" / "multicentre").glob("*/__init__.py")
        if "\n__all__ = " in module.read_text(encoding="utf-8")
    ]
    names = {
        name
        for package in packages
        for name in importlib.import_module(f"multicentre.{package}").__all__
        if name[0] != "_"
    }
    pages = {path.stem.rpartition(".")[2] for path in (website / "docs" / "api").glob("*.html")}
    assert len(packages) > 10
    assert names - pages == set()


def test_a_class_has_its_inherited_members_and_no_private_name(website):
    path = website / "docs" / "api" / "multicentre.survival.FedCox.html"
    identifiers = elements(path).identifiers
    inherited = {f"multicentre.survival.FedCox.{name}" for name in ("fit", "save", "plot", "to_frame", "get_params")}
    assert inherited <= identifiers
    assert "hazard_ratios_" in path.read_text(encoding="utf-8")
    assert not [one for one in identifiers if re.search(r"\._[a-z]", one)]


def test_no_page_loads_anything_from_elsewhere(website, pages):
    assert len(pages) > 200
    assert {page.name: external(page) for page in pages if external(page)} == {}
    styles = {path: path.read_text(encoding="utf-8") for path in website.rglob("*.css")}
    assert [path for path, text in styles.items() if re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", text)] == []


def test_every_link_leads_somewhere(pages):
    broken = {str(page): links for page in pages if (links := broken_links(page))}
    assert broken == {}


def test_formulas_are_drawn_by_the_browser(tmp_path):
    (tmp_path / "conf.py").write_text(
        f"import sys\nsys.path.insert(0, {str(ROOT / 'docs' / 'extensions')!r})\n"
        "extensions = ['myst_parser', 'mathml']\nhtml_math_renderer = 'mathml'\n"
        "myst_enable_extensions = ['dollarmath']\n",
        encoding="utf-8",
    )
    page = "# Title\n\nInline $x_i^2$.\n\n$$\n\\frac{a}{b} &= c \\\\ d &= e\n$$\n\n$\\unknown{a}$\n"
    (tmp_path / "index.md").write_text(page, encoding="utf-8")
    command = [sys.executable, "-m", "sphinx", "-b", "html", str(tmp_path), str(tmp_path / "out")]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    text = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert text.count("<math") == 2
    assert "mathjax.js" not in text.lower()
    assert 'Unknown LaTeX command "\\unknown"' in run.stderr


@needs_chromium
def test_search_works_on_files_and_requests_nothing(website, tmp_path):
    address = (website / "search.html").as_uri() + "?q=proportional+hazards"
    with noted_requests() as (asked, proxy):
        options = [f"--proxy-server={proxy}", "--virtual-time-budget=20000", "--dump-dom"]
        output = run_chromium(tmp_path, *options, address)
    results = re.findall(r'<a href="([^"#?]*)[^"]*"', output.partition('id="search-results"')[2])
    assert any("methods/fed-cox.html" in result for result in results)
    assert asked == []


@needs_chromium
def test_no_page_is_wider_than_a_telephone(pages, tmp_path):
    widths = measure(tmp_path, [page for page in pages if "_modules" not in page.parts], 400)
    assert len(widths) > 200
    assert {page: content for page, (window, content) in widths.items() if content > window} == {}


def test_the_search_for_faults_notices_them(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        '<p id="here"><a href="#here">a</a><a href="#there">b</a><a href="absent.html">c</a>'
        '<img src="https://elsewhere.example/a.png"><script src="//elsewhere.example/b.js"></script>',
        encoding="utf-8",
    )
    assert broken_links(page) == ["#there", "absent.html"]
    assert external(page) == ["https://elsewhere.example/a.png", "//elsewhere.example/b.js"]
    if CHROMIUM:
        page.write_text('<!DOCTYPE html><p style="width: 700px">wide', encoding="utf-8")
        assert measure(tmp_path, [page], 400)[page.as_uri()][1] >= 700

"""The API reference: one page per public name, written before the build from the names that each module lists.

A name is public if its module is one of ``MODULES`` and lists it in ``__all__``. A name that several modules list has
one page, under the first of them. A class has one page with its inherited methods.
"""

import builtins
import importlib
import inspect
import re
import sys
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

# The first module that lists a name has its page: methods before what is common, the author's names last.
MODULES = (
    "multicentre.analytics",
    "multicentre.regression",
    "multicentre.survival",
    "multicentre.multiview",
    "multicentre.phenotyping",
    "multicentre.clustering",
    "multicentre.boosting",
    "multicentre.validation",
    "multicentre.data",
    "multicentre.datasets",
    "multicentre.linkage",
    "multicentre.formula",
    "multicentre.privacy",
    "multicentre.studies",
    "multicentre.reports",
    "multicentre.errors",
    "multicentre",
    "multicentre.extend",
    "multicentre.testing",
    "multicentre_papers.baselines",
    "multicentre_papers.published",
)
# Classes of other packages, which document their methods themselves.
FOREIGN = "object, dict, list, tuple, str, int, Exception, Warning, Enum, Generic, Protocol, BaseModel"
# scikit-learn adds these to every estimator, for pipelines that pass sample weights; none of ours does.
ROUTING = re.compile(r"get_metadata_routing|set_\w+_request")

# Packages whose own documentation describes the names in docstrings that begin so.
PEERS = ("numpy.", "pandas.", "scipy.", "sklearn.", "xgboost.", "torch.", "matplotlib.")


def public_names(module: str) -> list[str]:
    """Return the names that a module lists, without its modules and its version."""
    content = importlib.import_module(module)
    listed = getattr(content, "__all__", None)
    if listed is None:
        listed = [name for name, one in inspect.getmembers(content, inspect.isclass) if one.__module__ == module]
    return [name for name in listed if not name.startswith("_") and not inspect.ismodule(getattr(content, name))]


def pages_of_names() -> dict[str, dict[str, str]]:
    """Return, for each module, the full name under which each of its names has its page."""
    pages: dict[tuple[int, str], str] = {}
    modules: dict[str, dict[str, str]] = {}
    for module in MODULES:
        content = importlib.import_module(module)
        modules[module] = {
            name: pages.setdefault((id(getattr(content, name)), name), f"{module}.{name}")
            for name in public_names(module)
        }
    return modules


def heading(text: str) -> str:
    """Return a heading of a reStructuredText page."""
    return f"{text}\n{'=' * len(text)}\n\n"


def page_of_name(full_name: str) -> str:
    """Return the page of one class, function or constant."""
    module, _, name = full_name.rpartition(".")
    value = getattr(importlib.import_module(module), name)
    text = heading(name) + f".. currentmodule:: {module}\n\n"
    if inspect.isclass(value):
        options = f"   :members:\n   :inherited-members: {FOREIGN}\n"
        return text + f".. autoclass:: {name}\n{options}"
    if callable(value):
        return text + f".. autofunction:: {name}\n"
    return text + f".. autodata:: {name}\n   :no-value:\n"


def page_of_module(module: str, names: dict[str, str]) -> str:
    """Return the page of a module: its docstring, and tables of its classes, functions and constants."""
    content = importlib.import_module(module)
    kinds: dict[str, list[str]] = {"Classes": [], "Functions": [], "Constants": []}
    for name, full_name in names.items():
        value = getattr(content, name)
        kind = "Classes" if inspect.isclass(value) else "Functions" if callable(value) else "Constants"
        kinds[kind].append(full_name)
    text = heading(module) + f".. automodule:: {module}\n   :no-members:\n\n"
    for kind, members in kinds.items():
        if members:
            rows = "".join(f"   {member.removeprefix(module + '.')}\n" for member in members)
            text += f".. rubric:: {kind}\n\n.. autosummary::\n\n{rows}\n"
    pages = "".join(f"   {full_name}\n" for name, full_name in names.items() if full_name == f"{module}.{name}")
    return text + f".. toctree::\n   :hidden:\n\n{pages}"


def write_pages(app: Sphinx, _config: Config) -> None:
    """Write the pages whose content changed, and remove those of names that are gone."""
    folder = Path(app.srcdir, "docs", "api")
    modules = pages_of_names()
    pages = {module: page_of_module(module, names) for module, names in modules.items()}
    pages |= {full_name: page_of_name(full_name) for names in modules.values() for full_name in names.values()}
    folder.mkdir(exist_ok=True)
    for path in folder.glob("*.rst"):
        if path.stem not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def list_modules(_app: Sphinx, page: str, source: list[str]) -> None:
    """Add the modules to the page of the API."""
    if page == "docs/api":
        pages = "\n".join(f"api/{module}" for module in MODULES)
        source[0] += f"\n\n```{{toctree}}\n:maxdepth: 1\n\n{pages}\n```\n"


@lru_cache
def names_in_use() -> frozenset[str]:
    """Return every name of the package and of Python, as docstrings abbreviate them: name, class and attribute."""
    names = set(vars(builtins))
    for module, content in list(sys.modules.items()):
        if module.partition(".")[0] not in ("multicentre", "multicentre_papers"):
            continue
        names.add(module)
        for name, value in list(vars(content).items()):
            names |= {name, f"{module}.{name}"}
            if inspect.isclass(value):
                attributes = [*dir(value), *getattr(value, "__annotations__", ())]
                names |= {f"{prefix}{one}" for one in attributes for prefix in ("", f"{name}.", f"{module}.{name}.")}
    return frozenset(names)


def show_internal_name(
    _app: Sphinx, _env: BuildEnvironment, node: pending_xref, content: nodes.TextElement
) -> nodes.Node | None:
    """Show a reference to a name that exists and has no page as text. Other references are errors."""
    target = node.get("reftarget", "").lstrip(".")
    exists = target in names_in_use() or target.startswith(PEERS) or is_importable(target)
    return content if node.get("refdomain") == "py" and exists else None


def is_importable(name: str) -> bool:
    """Return whether a name with dots is a module of the package or a name in one."""
    module, _, last = name.rpartition(".")
    try:
        is_name = name.startswith("multicentre.") and hasattr(importlib.import_module(module), last)
        return is_name or (name.startswith("multicentre.") and find_spec(name) is not None)
    except ImportError:
        return False


def correct_links_from_source(_app: Sphinx, page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """Correct the links of a source file to the pages of its names.

    Sphinx assumes that all names of a file are documented under one module. The page of a link names the right one.
    """
    if not page.startswith("_modules/"):
        return

    def correct(match: re.Match[str]) -> str:
        name = match["page"].rpartition(".")[2]
        return f"{match['page']}.html#{match['page']}{match['anchor'].partition(f'.{name}')[2]}"

    body = context["body"].replace('<li><a href="builtins.html">builtins</a></li>', "")
    context["body"] = re.sub(r"(?<=/api/)(?P<page>[\w.]+)\.html#(?P<anchor>[\w.]+)", correct, body)


def leave_out_routing(_app: Sphinx, _kind: str, name: str, *_others: Any) -> bool | None:
    """Leave out the methods of scikit-learn that no estimator uses."""
    return True if ROUTING.fullmatch(name) else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the pages."""
    app.connect("config-inited", write_pages)
    app.connect("source-read", list_modules)
    app.connect("missing-reference", show_internal_name)
    app.connect("autodoc-skip-member", leave_out_routing)
    app.connect("html-page-context", correct_links_from_source)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

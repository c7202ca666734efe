"""Settings of the documentation's website. `make docs` builds it.

The source folder is the root of the repository, so that links between pages, and to files outside `docs`, are the same
on the website as in the repository.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import multicentre

project = "multicentre"
author = "The multicentre developers"
copyright = "The multicentre developers; Apache-2.0"  # noqa: A001 - the name that Sphinx reads
version = release = multicentre.__version__
language = "en"

root_doc = "docs/index"
include_patterns = ["docs/**", "papers/docs/*.md", "*.md", "*/README.md"]
exclude_patterns = [".*", "build", "docs/extensions", "src", "tests", "**/__pycache__"]

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_copybutton",
    "api_pages",
    "page_groups",
    "notebook_files",
    "mathml",
]

# Every reference must resolve. Types in signatures and parameters are prose ("array of shape (n,)") and are not linked.
nitpicky = True
autosummary_generate = False
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

myst_enable_extensions = ["attrs_block", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
html_math_renderer = "mathml"

# Tutorials are executed when they, or the package, changed.
nb_execution_mode = "cache"
nb_execution_cache_path = str(Path(__file__).parents[1] / "build" / "docs-cache")
# An error of a tutorial is a warning, and thus an error of the build that names the page.
nb_execution_raise_on_error = False
nb_execution_in_temp = True
nb_execution_timeout = 300

html_theme = "pydata_sphinx_theme"
html_title = "multicentre"
html_static_path = ["static"]
html_css_files = ["website.css"]
html_copy_source = False
html_show_sourcelink = False
html_additional_pages = {"index": "redirect.html"}
templates_path = ["templates"]
html_theme_options = {
    "navbar_align": "left",
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc", "notebook"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
}

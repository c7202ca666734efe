"""Formulas as MathML, which browsers draw without a script or a font of the website."""

from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.writers.html5 import HTML5Translator

_LOG = logging.getLogger(__name__)


def formula(node: nodes.math | nodes.math_block, *, as_block: bool) -> str:
    """Return the MathML of a formula, or its source, with a warning, if it contains an unknown command."""
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        _LOG.warning("formula %r: %s", node.astext(), error, location=node)
        return f"<code>{escape(node.astext())}</code>"


def write_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(formula(node, as_block=False))
    raise nodes.SkipNode


def write_display(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line by itself."""
    translator.body.append(f'<div class="math">{formula(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

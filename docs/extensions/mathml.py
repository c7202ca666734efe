"""Formulas as MathML, which browsers draw without a script or a font of the website."""

from typing import Any

from docutils import nodes
from docutils.utils.math import wrap_math_code
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def write_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def write_display(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line by itself."""
    translator.body.append(f'<div class="math">{tex2mathml(wrap_math_code(node.astext(), True), as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

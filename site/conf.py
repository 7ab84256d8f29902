"""Sphinx's settings: Markdown pages, mathematics as MathML made while the site is built, nothing from another host."""

from docutils import nodes
from latex2mathml.converter import convert

import symcomm

project = html_title = "symcomm"
release = symcomm.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_design", "sphinx_copybutton"]
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "html_image"]
myst_heading_anchors = 4
nitpicky = True
# Names of inner modules in signatures: their pages are the docstrings themselves.
nitpick_ignore_regex = [("py:.*", ".*")]
html_theme = "furo"
html_static_path = ["assets"]
html_css_files = ["site.css"]
html_show_sphinx = html_show_copyright = False
pygments_dark_style = "monokai"
autodoc_typehints = "none"
exclude_patterns = ["files"]


def _inline(visitor, node):
    visitor.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(visitor, node):
    visitor.body.append(f'<div class="math">{convert(node.astext(), display="block")}</div>')
    raise nodes.SkipNode


def setup(app):
    """Formulas are MathML, which browsers set by themselves: no script and no font is loaded."""
    app.add_node(nodes.math, override=True, html=(_inline, None))
    app.add_node(nodes.math_block, override=True, html=(_block, None))

"""Configuration of the documentation site; `make docs` builds it."""

import sys
from pathlib import Path

import scalecal

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))

project = "scalecal"
author = "The scalecal developers"
copyright = "The scalecal developers"
version = release = scalecal.__version__
language = "en"
smartquotes = False

extensions = [
    "matplotlib.sphinxext.plot_directive",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "generated_pages",
]
exclude_patterns = ["_build", "_extensions", "gallery"]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

# A name in backticks is a link where the site knows it, and code where it does not.
default_role = "name"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = False
numpydoc_show_class_members = False

plot_include_source = plot_html_show_source_link = plot_html_show_formats = False
plot_formats = [("png", 160)]
plot_basedir = str(HERE)

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"plot_",
    "abort_on_example_error": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "remove_config_comments": True,
    "download_all_examples": False,
    "image_scrapers": ("gallery_settings.figures",),
    "reset_modules": ("gallery_settings.house_style",),
    "within_subsection_order": "gallery_settings.Order",
    "capture_repr": (),
    "write_computation_times": False,
}

html_theme = "pydata_sphinx_theme"
html_title = "scalecal"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_theme_options = {
    "github_url": "https://github.com/scalecal/scalecal",
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": ["page-toc"],
    "pygments_light_style": "tango",
}
html_sidebars = {"index": [], "primer": [], "changelog": []}

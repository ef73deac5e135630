"""The report people open: the facts of runs as one self-contained page, figures and tables."""

from scalecal.evaluation.folder import newest_report, report_facts
from scalecal.report.checklists import CHECKLISTS, write_checklist
from scalecal.report.exporting import export
from scalecal.report.page import audit_drawing, audit_html, audit_page, check_images, write_report
from scalecal.report.paper_text import paragraph

__all__ = [
    "CHECKLISTS",
    "audit_drawing",
    "audit_html",
    "audit_page",
    "check_images",
    "export",
    "newest_report",
    "paragraph",
    "report_facts",
    "write_checklist",
    "write_report",
]

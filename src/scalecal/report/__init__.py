"""The report people open: run folders to facts, facts to one self-contained page, figures, tables."""

from scalecal.report.exporting import export
from scalecal.report.fragment import audit_html, audit_page
from scalecal.report.page import write_report
from scalecal.runs.folder import newest_report, report_facts

__all__ = ["audit_html", "audit_page", "export", "newest_report", "report_facts", "write_report"]

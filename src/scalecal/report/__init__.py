"""The report people open: run folders to facts, facts to one self-contained page, figures, tables."""

from scalecal.report.exporting import export
from scalecal.report.fragment import audit_html, audit_page
from scalecal.report.render import write_report
from scalecal.report.runs import newest_report
from scalecal.report.summary import report_facts

__all__ = ["audit_html", "audit_page", "export", "newest_report", "report_facts", "write_report"]

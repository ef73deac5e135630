"""No token, key, password or signature in anything that is kept or printed."""

import sys

import numpy as np
import pytest

import scalecal
from scalecal.checks import SECRETS, InputError, redacted
from scalecal.cli.app import unexpected
from scalecal.evaluation.folder import write_run

SECRET = "hf_abcdefghijKLMNOP0123456789"
FORMS = (
    SECRET,
    "AKIAIOSFODNN7EXAMPLE",
    "https://me:pa55word@example.org/p.csv",
    "s3://bucket/p.csv?X-Amz-Credential=pa55word&X-Amz-Signature=pa55word",
    "https://example.org/p.csv?token=pa55word",
    "Authorization: Bearer pa55word.pa55word",
)


def _is_clean(text: str) -> bool:
    return not any(part in text for part in (SECRET, "pa55word", "IOSFODNN7"))


@pytest.mark.parametrize("text", FORMS)
def test_secrets_are_known_by_their_form(text):
    assert _is_clean(redacted(text))
    assert _is_clean(str(InputError(f"no file at {text}")))


@pytest.mark.parametrize(
    "text", ["P07_slide2@40x", "a:b@c", "half_of_it", "x?part=1&n=2", "", "AKIA"]
)
def test_other_text_stays(text):
    assert redacted(text) == text


@pytest.mark.parametrize("name", SECRETS)
def test_values_of_the_environment_are_left_out(name, monkeypatch):
    monkeypatch.setenv(name, "pa55word/+without-form")
    assert redacted("x pa55word/+without-form y") == "x *** y"


def test_a_run_keeps_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "pa55word-of-the-environment")
    command = ["scalecal", "audit", *FORMS, "pa55word-of-the-environment"]
    p = np.linspace(0.05, 0.95, 40)
    audit = scalecal.audit(p > 0.5, p, n_resamples=20)
    write_run(tmp_path / "run", audit, kind="audit", command=command, options={"x": SECRET})
    written = list((tmp_path / "run").iterdir())
    assert any(file.name == "run.json" for file in written)
    for file in written:
        assert _is_clean(file.read_bytes().decode("latin-1")), file.name
    from scalecal.report import write_report

    page = write_report([tmp_path / "run"], tmp_path / "page.html")
    assert _is_clean(page.read_text(encoding="utf-8"))


def test_the_log_of_a_fault_keeps_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr(sys, "argv", ["scalecal", "audit", *FORMS])
    assert _is_clean(unexpected(RuntimeError(f"cannot read {FORMS[2]}")))
    (log,) = tmp_path.glob("scalecal-*.log")
    assert "RuntimeError" in log.read_text()
    assert _is_clean(log.read_text())

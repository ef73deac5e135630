"""A few hundred cases of every surface end well: as they should, or with a clear error."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from scalecal.checks import InputError
from tests.fuzz import engine
from tests.fuzz.engine import (
    CLEAR,
    CRASH,
    FINE,
    HANG,
    SURPRISE,
    UNCLEAR,
    Bench,
    Case,
    Surface,
    command,
)
from tests.fuzz.registry import SURFACES
from tests.fuzz.workers import APART


@pytest.mark.parametrize("name", SURFACES)
def test_every_case_ends_well(name):
    bench = Bench(name, SURFACES[name])
    try:
        for number in range(1, 1 + SURFACES[name].tested):
            outcome = bench.run(number, apart=number % APART == 0)
            assert outcome.kind in (FINE, CLEAR), (
                f"python -m tests.fuzz {name} {number}: {outcome.kind}, {outcome.place}\n{outcome.text}"
            )
    finally:
        bench.close()


@pytest.mark.parametrize("name", SURFACES)
def test_a_case_is_drawn_from_its_number(name):
    def files(bench, number):
        about = bench.draw(number).about
        place = bench.folder / "case"
        found = sorted(p for p in place.rglob("*") if p.is_file() and not p.is_symlink())
        return about, [(str(p.relative_to(place)), p.read_bytes()) for p in found if p.is_file()]

    here = os.getcwd()
    bench = Bench(name, SURFACES[name])
    try:
        first = [files(bench, number) for number in (3, 4)]
        assert [files(bench, number) for number in (3, 4)] == first
    finally:
        os.chdir(here)
        bench.close()


def judge(call, *, apart=False, **options):
    bench = Bench("one", Surface("one", lambda _: None, lambda *_: Case(call, **options)))
    try:
        return bench.run(0, apart=apart)
    finally:
        bench.close()


def failing(error):
    def call():
        raise error

    return call


def test_outcomes_are_told_apart(monkeypatch):
    monkeypatch.setattr(engine, "SECONDS", 0.2)
    assert judge(lambda: 3).kind == FINE
    assert judge(failing(InputError("a.csv is empty")), names=("a.csv",)).kind == CLEAR
    assert judge(failing(InputError("it is empty")), names=("a.csv",)).kind == UNCLEAR
    assert judge(failing(InputError("a.csv" + "x" * 90)), names=("a.csv",), most=50).kind == UNCLEAR
    assert judge(failing(KeyError("x"))).kind == SURPRISE
    assert judge(lambda: time.sleep(5)).kind == HANG
    assert judge(lambda: time.sleep(5), apart=True).kind == HANG
    assert judge(lambda: os.kill(os.getpid(), signal.SIGKILL), apart=True).kind == CRASH
    assert judge(lambda: bytearray(8 << 30), apart=True).kind == SURPRISE


def test_commands_are_judged_by_exit_code_and_message(tmp_path):
    missing = tmp_path / "missing.csv"
    assert judge(lambda: command("audit", missing), names=("missing.csv",)).kind == CLEAR
    assert judge(lambda: command("audit", missing), names=("other.csv",)).kind == UNCLEAR
    assert judge(lambda: command("audit", missing, "--no-such-option")).kind == CLEAR
    assert judge(lambda: command("list", "methods")).kind == FINE


def test_the_table_is_put_into_a_document():
    from tests.fuzz.__main__ import MARK, replaced

    assert replaced(f"a\n\n{MARK}old\nold\n\nb\n\nc\n", "new") == f"a\n\n{MARK}new\n\nb\n\nc\n"


def test_a_run_goes_on_where_it_was(tmp_path):
    from tests.fuzz.__main__ import Record

    record = Record(tmp_path)
    record.add(
        "csv", [(0, engine.Outcome(FINE)), (1, engine.Outcome(SURPRISE, "here", "KeyError"))]
    )
    record.next["csv"] = 2
    record.save()
    again = Record(tmp_path)
    assert (again.next, again.counts) == ({"csv": 2}, {"csv": {FINE: 1, SURPRISE: 1}})
    again.replace({("csv", 1): engine.Outcome(CLEAR)})
    again.list_failures()
    assert Record(tmp_path).counts["csv"] == {FINE: 1, CLEAR: 1, SURPRISE: 0}
    assert Path(tmp_path, "surprises-csv.md").read_text().startswith("# csv: 0 of 2 cases")
    assert "| CSV | 2 |" in again.table({"csv": "CSV"})

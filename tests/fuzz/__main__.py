"""Run many cases, or one again.

``python -m tests.fuzz``                runs the next cases of every surface (``-n``, ``-j``, ``--only``)
``python -m tests.fuzz SURFACE NUMBER`` runs one case again and prints how it ended
``python -m tests.fuzz --table``        prints the table of everything that was run
``python -m tests.fuzz --write FILE``   puts it into a document, in place of the last one
``python -m tests.fuzz --again``        runs the cases again that failed, and counts them anew

What was run is kept in ``runs/fuzz``: a stopped run goes on where it was.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.engine import (
    BROKEN,
    CLEAR,
    CRASH,
    FINE,
    HANG,
    KINDS,
    SURPRISE,
    UNCLEAR,
    Bench,
    Outcome,
)
from tests.fuzz.workers import APART, run_all

KEPT = Path("runs/fuzz")
CHUNK = 250
LISTED_EVERY = 30.0
"""Seconds between two lists of failures."""
GOOD = (FINE, CLEAR)


class Record:
    """What was run: counts by surface and kind, and every case that did not end well."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._state = folder / "state.json"
        self._failed = folder / "failed.jsonl"
        state = json.loads(self._state.read_text()) if self._state.exists() else {}
        self.counts = {name: Counter(kinds) for name, kinds in state.get("counts", {}).items()}
        self.next: dict[str, int] = state.get("next", {})
        self.seconds: dict[str, float] = state.get("seconds", {})
        self.apart: dict[str, int] = state.get("apart", {})
        lines = self._failed.read_text().splitlines() if self._failed.exists() else []
        self.failed: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def add(self, surface: str, results: Iterable[tuple[int, Outcome]]) -> None:
        """Count results and keep those that did not end well."""
        counts = self.counts.setdefault(surface, Counter())
        with self._failed.open("a") as file:
            for number, outcome in results:
                counts[outcome.kind] += 1
                self.apart[surface] = self.apart.get(surface, 0) + (number % APART == 0)
                self.seconds[surface] = self.seconds.get(surface, 0.0) + outcome.seconds
                if outcome.kind not in GOOD:
                    line = {"surface": surface, "number": number, **vars(outcome)}
                    line["text"] = line["text"][-1500:]
                    self.failed.append(line)
                    file.write(json.dumps(line) + "\n")

    def save(self) -> None:
        """Write the counts."""
        content = {
            "counts": self.counts,
            "next": self.next,
            "seconds": self.seconds,
            "apart": self.apart,
        }
        partial = self._state.with_suffix(".tmp")
        partial.write_text(json.dumps(content))
        partial.replace(self._state)

    def list_failures(self) -> None:
        """Write the failures of each surface, those of one place together."""
        for surface in self.counts:
            (self._folder / f"surprises-{surface}.md").write_text(
                "\n".join(self._listed(surface)) + "\n"
            )

    def replace(self, results: dict[tuple[str, int], Outcome]) -> None:
        """Count cases anew that were run again."""
        for line in self.failed:
            new = results.get((line["surface"], line["number"]))
            if new is not None:
                self.counts[line["surface"]][line["kind"]] -= 1
                self.counts[line["surface"]][new.kind] += 1
                line.update(vars(new))
        self.failed = [line for line in self.failed if line["kind"] not in GOOD]
        self._failed.write_text("".join(json.dumps(line) + "\n" for line in self.failed))
        self.save()

    def _listed(self, surface: str) -> Iterator[str]:
        own = [line for line in self.failed if line["surface"] == surface]
        places = Counter((line["kind"], line["place"]) for line in own)
        cases = sum(self.counts[surface].values())
        yield f"# {surface}: {len(own)} of {cases:,} cases, {len(places)} places"
        for (kind, place), count in places.most_common():
            first = next(line for line in own if (line["kind"], line["place"]) == (kind, place))
            last = (first["text"].strip().splitlines() or [""])[-1]
            yield f"- {kind}, {count} times: {place}"
            yield f"  - python -m tests.fuzz {surface} {first['number']} ({first['about']}): {last[:300]}"

    def table(self, titles: dict[str, str]) -> str:
        """The table of all surfaces, as it stands in docs/reliability.md."""
        head = (
            "surface",
            "cases",
            "own process",
            "fine",
            "clear error",
            "unclear error",
            "exit code 70",
            "hang",
            "crash",
            "ms",
        )
        rows = [head]
        total: Counter[str] = Counter()
        for name, title in titles.items():
            counts = self.counts.get(name, Counter())
            total.update(counts)
            rows.append(
                self._row(title, counts, self.apart.get(name, 0), self.seconds.get(name, 0.0))
            )
        rows.append(self._row("all", total, sum(self.apart.values()), sum(self.seconds.values())))
        lines = ["| " + " | ".join(row) + " |" for row in rows]
        return "\n".join([lines[0], "|---|" + "---:|" * (len(head) - 1), *lines[1:]])

    def _row(self, title: str, counts: Counter[str], apart: int, seconds: float) -> tuple[str, ...]:
        n = sum(counts.values())
        kinds = (FINE, CLEAR, UNCLEAR, SURPRISE, HANG, CRASH)
        shown = [f"{counts[kind]:,}" for kind in kinds]
        shown[-1] = f"{counts[CRASH] + counts[BROKEN]:,}"
        return (title, f"{n:,}", f"{apart:,}", *shown, f"{1000 * seconds / max(n, 1):.1f}")


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        "python -m tests.fuzz",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("surface", nargs="?")
    parser.add_argument("number", nargs="?", type=int)
    parser.add_argument("-n", type=int, default=10_000, help="cases in all, among all surfaces")
    parser.add_argument("-j", type=int, default=1, help="processes")
    parser.add_argument("--only", help="surfaces, with commas between")
    parser.add_argument("--table", action="store_true", help="print the table and run nothing")
    parser.add_argument("--write", type=Path, metavar="FILE", help="put the table into a document")
    parser.add_argument("--again", action="store_true", help="run again what failed")
    parser.add_argument(
        "--kept", type=Path, default=KEPT, metavar="DIR", help="where results are kept"
    )
    options = parser.parse_args()
    from tests.fuzz.registry import SURFACES

    titles = {name: surface.title for name, surface in SURFACES.items()}
    if options.surface is not None:
        bench = Bench(options.surface, SURFACES[options.surface])
        outcome = bench.run(options.number)
        bench.close()
        print(
            f"{outcome.about}\n{outcome.text}\n{outcome.kind}: {outcome.place} ({outcome.seconds:.2f} s)"
        )
        sys.exit(outcome.kind not in GOOD)
    record = Record(options.kept)
    if options.table:
        print(record.table(titles))
        return
    if options.write is not None:
        options.write.write_text(replaced(options.write.read_text(), record.table(titles)))
        return
    only = options.only.split(",") if options.only else list(SURFACES)
    try:
        if options.again:
            _run_again(record, only, options.j)
        else:
            shares = {name: SURFACES[name].share for name in only}
            _run_more(record, shares, options.n, options.j)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    record.list_failures()
    print(record.table(titles))
    sys.exit(
        any(count for c in record.counts.values() for kind, count in c.items() if kind not in GOOD)
    )


MARK = "<!-- printed by python -m tests.fuzz --table -->\n"


def replaced(document: str, table: str) -> str:
    """Put a table into a document where its mark stands, up to the next empty line."""
    before, _, after = document.partition(MARK)
    _, _, rest = after.partition("\n\n")
    return f"{before}{MARK}{table}\n\n{rest}"


def _run_more(record: Record, shares: dict[str, float], n: int, jobs: int) -> None:
    whole = sum(shares.values())
    left = {name: round(n * shares[name] / whole) for name in shares}

    def tasks() -> Iterator[tuple[str, list[int]]]:
        while any(left.values()):
            for name in shares:
                size = min(CHUNK, left[name])
                if size:
                    start = record.next.get(name, 0)
                    record.next[name] = start + size
                    left[name] -= size
                    yield name, list(range(start, start + size))

    start, done = time.monotonic(), 0
    listed = start
    for name, results in run_all(tasks(), jobs):
        record.add(name, results)
        record.save()
        if time.monotonic() - listed > LISTED_EVERY:
            record.list_failures()
            listed = time.monotonic()
        done += len(results)
        bad = sum(c[k] for c in record.counts.values() for k in KINDS if k not in GOOD)
        pace = done / (time.monotonic() - start)
        print(
            f"\r{done:,} of {n:,} cases, {pace:.0f} a second, {bad:,} not well ",
            end="",
            file=sys.stderr,
            flush=True,
        )
    print(file=sys.stderr)


def _run_again(record: Record, only: list[str], jobs: int) -> None:
    numbers = {
        name: sorted({line["number"] for line in record.failed if line["surface"] == name})
        for name in only
    }
    tasks = iter(
        [
            (name, some[i : i + 50])
            for name, some in numbers.items()
            for i in range(0, len(some), 50)
        ]
    )
    results = {
        (name, number): outcome for name, some in run_all(tasks, jobs) for number, outcome in some
    }
    record.replace(results)


if __name__ == "__main__":
    main()

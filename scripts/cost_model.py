"""Cards, hours, money and the bottleneck of an extraction, by encoder and number of tiles.

Run: python scripts/cost_model.py [--price 3.0] [--hours 24] [--tile-kb 20] [--decode 1500]

Images a second are those of the whole pipeline on one H200 (`docs/benchmarks.md`: patches in HDF5, so
that nothing is decoded; bf16, batch 512, resized on the card). Price, tile size and decoding speed
are assumptions: give your own.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from pathlib import Path

from scalecal.encoders import ENCODERS

BENCHMARKS = Path(__file__).parents[1] / "docs" / "benchmarks.md"
TILES = (10**6, 10**8, 10**10)
CORES_PER_CARD = 16
NETWORK_GBIT = 100  # of one machine of eight cards
LARGEST_PART = 10**7  # tiles of one folder: the table stays below a few gigabytes


@dataclass(frozen=True)
class Measured:
    """Images per second of one H200 and the length of an embedding."""

    images_per_second: float
    dim: int


def measured() -> dict[str, Measured]:
    """Read the pipeline's images a second from the page of benchmarks, for the paper's encoders."""
    rates = {}
    for line in BENCHMARKS.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        # | encoder | patches | ready | uint8 | pipeline ...; the first table is the default's.
        if len(cells) == 11 and cells[0] in ENCODERS and cells[0] not in rates:
            rates[cells[0]] = float(cells[4].replace(",", ""))
    rates["chief"] = rates["ctranspath"]  # the same network with other weights
    return {
        name: Measured(rates[name], record.dim) for name, record in ENCODERS.items() if record.paper
    }


@dataclass(frozen=True)
class Assumptions:
    """What the model takes for granted."""

    price: float
    hours: float
    tile_kb: float
    decode: float


def needs(encoder: Measured, given: Assumptions) -> tuple[float, float]:
    """Cores that decode and gigabits a second that arrive, for each card at full speed."""
    rate = encoder.images_per_second
    return rate / given.decode, rate * given.tile_kb * 8e3 / 1e9


def rate_per_card(encoder: Measured, given: Assumptions) -> tuple[float, str]:
    """Images a second of a card with its cores and its share of the network, and what limits it."""
    limits = {
        "card": encoder.images_per_second,
        "decoding": CORES_PER_CARD * given.decode,
        "network": NETWORK_GBIT / 8 * 1e9 / (given.tile_kb * 8e3),
    }
    name = min(limits, key=lambda k: limits[k])
    return limits[name], name


def text_of(hours: float) -> str:
    return f"{hours * 60:.0f} min" if hours < 2 else f"{hours:,.0f} h"


def money_of(amount: float) -> str:
    return f"{amount:,.2f}" if amount < 10 else f"{amount:,.0f}"


def table(given: Assumptions) -> str:
    """One row per encoder and number of tiles."""
    lines = [
        "| encoder | tiles | card-hours | money | cards | takes | features | parts | limit |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for name, encoder in measured().items():
        rate, limit = rate_per_card(encoder, given)
        for tiles in TILES:
            card_hours = tiles / rate / 3600
            cards = max(1, math.ceil(card_hours / given.hours))
            stored = tiles * encoder.dim * 2 / 1e9
            size = f"{stored:,.0f} GB" if stored < 2000 else f"{stored / 1000:,.1f} TB"
            lines.append(
                f"| {name} | 10^{round(math.log10(tiles))} | {card_hours:,.2f} | "
                f"{money_of(given.price * card_hours)} | {cards} | {text_of(card_hours / cards)} | "
                f"{size} | {math.ceil(tiles / LARGEST_PART):,} | {limit} |"
            )
    return "\n".join(lines)


def per_card(given: Assumptions) -> str:
    """What has to stand beside every card to keep it busy."""
    lines = [
        "| encoder | images / s | cores that decode | network, Gbit/s | written, MB/s |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, encoder in measured().items():
        cores, network = needs(encoder, given)
        rate = encoder.images_per_second
        lines.append(
            f"| {name} | {rate:,.0f} | {cores:.1f} | {network:.2f} | "
            f"{rate * encoder.dim * 2 / 1e6:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--price", type=float, default=3.0, help="per card and hour")
    parser.add_argument("--hours", type=float, default=24.0, help="a run may take")
    parser.add_argument("--tile-kb", type=float, default=20.0, help="of a stored tile")
    parser.add_argument("--decode", type=float, default=1500.0, help="tiles a second and core")
    given = Assumptions(**vars(parser.parse_args()))
    print(
        f"Assumed: {given.price:g} a card-hour, {given.hours:g} h at most, tiles of "
        f"{given.tile_kb:g} kB, {given.decode:,.0f} tiles decoded a second and core, "
        f"{CORES_PER_CARD} cores a card, {NETWORK_GBIT} Gbit/s for 8 cards.\n"
    )
    print(per_card(given), end="\n\n")
    print(table(given))


if __name__ == "__main__":
    main()

"""The races as a picture: `python -m bench.peers.plot FIGURES.json FILE`, of the peers' Python.

A process of its own, because matplotlib is none of Ratchet's packages.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

_TITLES = {"load": "load, rows/s", "follow": "follow, changes/s"}
_OURS, _THEIRS = "#b5442e", "#8a97a6"


def main(figures: str, file: str) -> int:
    """Draw the bars of both races.

    Args:
        figures: JSON: of each race name, rate and shortfall of each peer; `note`, for the foot.
        file: PNG or SVG, as its name says.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    given = json.loads(Path(figures).read_text())
    height = 1.2 + 0.38 * max(len(given[race]) for race in _TITLES)
    figure, panels = plt.subplots(1, 2, figsize=(11, height), layout="constrained")
    for panel, (race, title) in zip(panels, _TITLES.items(), strict=True):
        bars = sorted(given[race], key=lambda bar: bar[1])
        rates = [rate for _, rate, _ in bars]
        colours = [_OURS if name == "ratchet" else _THEIRS for name, _, _ in bars]
        labels = [f"{rate:,.0f}" + (f" ({short})" if short else "") for _, rate, short in bars]
        drawn = panel.barh([name for name, _, _ in bars], rates, color=colours, height=0.62)
        panel.bar_label(drawn, labels=labels, padding=4, fontsize=9)
        panel.set_title(title, loc="left", fontsize=11)
        panel.spines[["top", "right", "left"]].set_visible(False)
        panel.tick_params(left=False)
        if rates and max(rates) > 10 * min(rates):
            # Bars begin a power of ten below the smallest, or they would have no beginning.
            panel.set_xscale("log")
            panel.set_xlim(left=10 ** (len(str(int(min(rates)))) - 2), right=max(rates) * 12)
            panel.set_title(f"{title} (logarithmic)", loc="left", fontsize=11)
        elif rates:
            panel.set_xlim(right=max(rates) * 1.5)
            panel.locator_params(axis="x", nbins=5)
            panel.xaxis.set_major_formatter("{x:,.0f}")
    figure.supxlabel(given["note"], fontsize=8, color="#555555")
    figure.savefig(file, dpi=150)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

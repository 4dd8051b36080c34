"""A soak as a picture: `python -m bench.soak.plot SAMPLES.json FILE`, of the peers' Python.

A process of its own, because matplotlib is none of Ratchet's packages.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(samples: str, file: str) -> int:
    """Draw lag, memory, and the lake over time.

    Args:
        samples: JSON: a list of `Sample`, each as an object.
        file: PNG or SVG, as its name says.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    given = json.loads(Path(samples).read_text())
    minutes = [one["at"] / 60 for one in given]
    figure, panels = plt.subplots(3, 1, figsize=(10, 8), sharex=True, layout="constrained")
    for keyspace in sorted({name for one in given for name in one["lag"]}):
        lags = [one["lag"].get(keyspace) for one in given]
        panels[0].plot(minutes, lags, linewidth=0.8, label=f"lag of {keyspace}, s")
    for name, label in (("python", "Python, MiB"), ("java", "Java, MiB")):
        panels[1].plot(minutes, [one[name] for one in given], linewidth=0.8, label=label)
    panels[2].plot(minutes, [one["size"] for one in given], linewidth=0.8, label="lake, MiB")
    panels[2].plot(
        minutes, [sum(one["kinds"].values()) for one in given], linewidth=0.8, label="files"
    )
    for panel in panels:
        panel.legend(loc="upper left", frameon=False, fontsize=9)
        panel.spines[["top", "right"]].set_visible(False)
        panel.set_ylim(bottom=0)
    panels[2].set_xlabel("minutes")
    figure.savefig(file, dpi=120)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

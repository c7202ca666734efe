"""Accuracy of FedMSGL's presets and default, and of the suggested numbers of clusters.

`choose` compares presets by their accuracy on data sets with known groups: for each set of the choice, the preset that
is best on all other sets is chosen, and its accuracy on the set left out is reported. `unseen` fits the default to data
sets that were not used for any choice, next to the compared methods and the plain baselines. `numbers` counts how often
the suggested number of clusters is that of the groups, by certainty. Sets that do not come with scikit-learn are read
from the folder of `--folder` (one ``NAME.mat`` per set, with views in the cells of ``X`` and groups in ``Y``, and CSV
files of R's mlbench and modeldata); absent ones are named.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import clustering_numbers
import clustering_sets
from measuring import pin_threads, write_json

PARTS = ("choose", "unseen", "numbers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="default: all")
    parser.add_argument("--folder", type=Path, default=Path("data"), help="folder of data sets")
    parser.add_argument("--sets", nargs="*", help="only these data sets")
    parser.add_argument("--compared", type=int, default=400, help="patients up to which unseen runs all methods")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    pin_threads()
    parts = options.parts or PARTS
    results: dict[str, Any] = {}
    if "choose" in parts:
        results["choose"] = clustering_sets.choose(options.folder, options.sets)
    if "unseen" in parts:
        results["unseen"] = clustering_sets.compare_unseen(options.folder, options.sets, options.compared)
    if "numbers" in parts:
        results["numbers"] = clustering_numbers.suggest_numbers(options.folder, options.sets)
    write_json(options.json, results)


if __name__ == "__main__":
    main()

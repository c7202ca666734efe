"""Write the files of three simulated hospitals, and a study over them, to a folder.

Usage: python examples/first_paper/make_data.py FOLDER. The command `multicentre datasets example FOLDER` does the same.
"""

import sys

from multicentre.datasets import write_example_study

if __name__ == "__main__":
    study = write_example_study(sys.argv[1])
    print(f"Wrote three hospitals and study.toml to {study.parent}. Next: multicentre run {study}")

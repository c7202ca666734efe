"""Candidate numbers of clusters with the evidence for each.

Two partitions of the same patients agree if their adjusted Rand index is near 1. A number of clusters is reproducible
if partitions into that number agree

* between single starts of k-means ("starts"), and
* between all patients and random four fifths of them, for which the hypergraph and its embedding are computed again
  ("samples").

The score of a number is the mean of both agreements. A reproducible number need not be that of the groups: a coarse
division into unions of groups, or a fine one, can be reproducible too. :data:`FREQUENCIES` says how often it was.

References
----------
T. Lange, V. Roth, M. L. Braun, J. M. Buhmann (2004), Stability-based validation of clustering solutions, Neural
Computation 16, 1299-1323. U. von Luxburg (2010), Clustering stability: an overview, Foundations and Trends in Machine
Learning 2, 235-274.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.hypergraph import diffuse
from multicentre.clustering.metrics import adjusted_rand, stability
from multicentre.clustering.partition import partition_rows
from multicentre.core.messages import Message, array
from multicentre.core.tie_breaking import first_largest

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Span = Callable[[Integers], tuple[Floats, Floats]]
# Starts that are compared to judge a number of clusters: 15 pairs, enough for a mean index.
N_STARTS = 6
# Samples of patients, and the share of patients in each, usual values for this kind of stability.
N_SAMPLES, SHARE = 4, 0.8
# Starts of k-means in a sample: fewer than in a fit, since this step takes most of the time.
N_SAMPLE_STARTS = 3
# Patients above which evidence comes from as many drawn at random, to bound the time.
MAX_JUDGED = 5_000
# Score from which a number is reproducible, and the difference within which two scores are close; chosen on data.
REPRODUCIBLE, CLOSE = 0.9, 0.05
Certainty = Literal["reproducible", "several", "weak"]
# Data sets with known groups and evidence of this kind; in how many the suggested number was that of the groups; and in
# how many that was among the three highest scores. From `benchmarks/clustering.py numbers`: whole data sets, and random
# groups of them. The half that did not set the two thresholds has the higher shares, so both halves are counted.
FREQUENCIES: dict[Certainty, tuple[int, int, int]] = {
    "reproducible": (54, 38, 43),
    "several": (44, 12, 31),
    "weak": (40, 6, 14),
}


@dataclass(frozen=True)
class Candidates(Message):
    """Numbers of clusters with the evidence for each."""

    numbers: Integers = array("numbers of clusters, ascending", ("k",), dtype="i8")
    gaps: Floats = array("step of the eigenvalues after each number", ("k",))
    starts: Floats = array("mean adjusted Rand index between single starts of k-means", ("k",))
    samples: Floats = array("mean adjusted Rand index between all patients and samples of them", ("k",))

    @property
    def scores(self) -> Floats:
        """Mean of both agreements, shape (k,)."""
        return np.asarray((self.starts + self.samples) / 2.0)

    @property
    def best(self) -> int:
        """Number of the highest score."""
        return int(self.numbers[first_largest(self.scores, size=1.0)])

    @property
    def close(self) -> list[int]:
        """Other numbers whose score is within 0.05 of the highest, by descending score."""
        order = np.argsort(-self.scores, kind="stable")
        is_close = self.scores >= self.scores.max() - CLOSE
        return [int(self.numbers[place]) for place in order if is_close[place] and self.numbers[place] != self.best]

    @property
    def certainty(self) -> Certainty:
        """Strength of the evidence for `best`.

        "reproducible": its score is at least 0.9 and no other is close. "several": it is at least 0.9, and others are
        close. "weak": it is below 0.9, so no number is reproducible. See :data:`FREQUENCIES`.
        """
        if self.scores.max() < REPRODUCIBLE:
            return "weak"
        return "several" if self.close else "reproducible"

    def describe(self) -> str:
        """Return the best number, the three numbers of the highest scores, and how often such numbers were right.

        Examples
        --------
        >>> numbers, even = np.array([2, 3, 4]), np.array([0.1, 0.1, 0.1])
        >>> candidates = Candidates(numbers, even, np.array([0.5, 1.0, 0.6]), np.array([0.6, 0.96, 0.7]))
        >>> for sentence in candidates.describe().split(". "):
        ...     print(sentence)
        Number of clusters: 3, reproducible
        Highest scores: 3 (0.98), 4 (0.65), 2 (0.55)
        Of 54 data sets with known groups and such evidence, the first was right in 38, one of the three in 43.
        """
        words = {
            "reproducible": "reproducible",
            "several": f"about as reproducible as {', '.join(map(str, self.close))}",
            "weak": "weak evidence, no number is reproducible",
        }
        top = np.argsort(-self.scores, kind="stable")[:3]
        scores = ", ".join(f"{self.numbers[place]} ({self.scores[place]:.2f})" for place in top)
        n_sets, right, among = FREQUENCIES[self.certainty]
        return (
            f"Number of clusters: {self.best}, {words[self.certainty]}. Highest scores: {scores}. Of {n_sets} data "
            f"sets with known groups and such evidence, the first was right in {right}, one of the three in {among}."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return one row per number, by descending score."""
        import pandas as pd

        columns = {"score": self.scores, "starts": self.starts, "samples": self.samples, "gap": self.gaps}
        frame = pd.DataFrame(columns, index=pd.Index(self.numbers, name="n_clusters"))
        return frame.sort_values("score", ascending=False, kind="stable")


def judge_candidates(span: Span, n: int, most: int, steps: int, random_state: int) -> Candidates:
    """Return the evidence for every number of clusters from 2 to `most`.

    Parameters
    ----------
    span : callable
        From the places of some patients to eigenvectors and eigenvalues of their hypergraph.
    n : int
        Patients.
    most : int
        At least 2 and below the number of eigenvalues.
    steps : int
        Steps of diffusion, as in :func:`multicentre.clustering.hypergraph.diffuse`.
    random_state : int

    Examples
    --------
    >>> from multicentre.clustering.hypergraph import embed, hyperedge_factor
    >>> affinity = np.kron(np.eye(3), np.ones((20, 20))) + 0.1 * np.random.default_rng(0).random((60, 60))
    >>> affinity = affinity + affinity.T
    >>> def span(places):
    ...     return embed(hyperedge_factor(affinity[np.ix_(places, places)], (5, 10)), 12)
    >>> candidates = judge_candidates(span, 60, 6, 4, 0)
    >>> candidates.best, candidates.certainty
    (3, 'reproducible')
    """
    rng = np.random.default_rng(random_state)
    judged = np.sort(rng.permutation(n)[:MAX_JUDGED])
    vectors, eigenvalues = span(judged)
    numbers = np.arange(2, most + 1)
    coordinates = [diffuse(vectors, eigenvalues, int(number), steps) for number in numbers]
    labels = [
        partition_rows(rows, int(number), random_state=random_state)
        for rows, number in zip(coordinates, numbers, strict=True)
    ]
    seeds = range(random_state, random_state + N_STARTS)
    starts = [
        stability([partition_rows(rows, int(number), n_init=1, random_state=seed) for seed in seeds])
        for rows, number in zip(coordinates, numbers, strict=True)
    ]
    agreements = np.zeros((N_SAMPLES, len(numbers)))
    for sample in agreements:
        places = np.sort(rng.permutation(len(judged))[: max(int(SHARE * len(judged)), 3)])
        sample[:] = _agree(span(judged[places]), [one[places] for one in labels], numbers, steps, random_state)
    gaps = np.diff(eigenvalues)[numbers - 1]
    return Candidates(numbers, gaps, np.array(starts), agreements.mean(axis=0))


def _agree(
    spectrum: tuple[Floats, Floats], labels: list[Integers], numbers: Integers, steps: int, random_state: int
) -> list[float]:
    """Return the agreement of the partitions of a sample with those of all patients, per number of clusters."""
    vectors, eigenvalues = spectrum
    agreements = []
    for number, expected in zip(numbers, labels, strict=True):
        rows = diffuse(vectors, eigenvalues, int(number), steps)
        n_clusters = min(int(number), len(rows))
        partition = partition_rows(rows, n_clusters, n_init=N_SAMPLE_STARTS, random_state=random_state)
        agreements.append(adjusted_rand(expected, partition))
    return agreements

"""The splitters on plain arrays, as scikit-learn uses them."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from multicentre.errors import ConfigurationError, DataError
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.secret_files import Secret
from multicentre.validation.folds.by_site import FederatedKFold, LeaveOneSiteOut
from multicentre.validation.folds.hashed import HashGroupKFold, RepeatedHashGroupKFold
from support.fold_sites import federate, folds_of, people_sites

KEY = PseudonymKey(Secret(bytes(range(32))))
RNG = np.random.default_rng(0)
PEOPLE = np.array([f"p{number}" for number in RNG.integers(150, size=240)])
X = RNG.normal(size=(240, 3))
Y = (X[:, 0] + RNG.normal(size=240) > 0).astype(int)


def folds_by(splitter, X, y=None, groups=None):
    folds = np.full(len(X), -1)
    for fold, (train, test) in enumerate(splitter.split(X, y, groups)):
        folds[test] = fold
        assert not set(train) & set(test)
    return folds


@pytest.mark.parametrize("options", [{}, {"stratify": False}, {"repeat": 3}, {"study": "hips"}])
def test_folds_are_those_of_a_federation_of_one_site(options):
    sites, people = people_sites(300, 1)
    data, groups = sites["site-0"], [f"p{number}" for number in people["site-0"]]
    study = options.get("study", "study")
    for key in (None, KEY):
        plan = HashGroupKFold(5, **{**options, "study": None}).plan(federate(sites, pseudonym_key=key, study=study))
        ours = folds_by(HashGroupKFold(5, key=key, **options), data.X, data.y, groups)
        assert np.array_equal(ours, folds_of(plan)["site-0"])


def test_people_stay_together_and_all_records_are_tested_once():
    folds = folds_by(HashGroupKFold(5, key=KEY), X, Y, PEOPLE)
    assert all(len(set(folds[one == PEOPLE].tolist())) == 1 for one in set(PEOPLE.tolist()))
    assert (folds >= 0).all()
    shares = np.array([Y[folds == fold].mean() for fold in range(5)])
    assert np.ptp(shares) < 0.08


def test_scikit_learn_scores_with_it():
    scores = cross_val_score(LogisticRegression(), X, Y, groups=PEOPLE, cv=HashGroupKFold(5, key=KEY))
    assert scores.shape == (5,)
    assert scores.mean() > 0.6
    pipeline = make_pipeline(StandardScaler(), LogisticRegression())
    repeated = cross_val_score(pipeline, X, Y, groups=PEOPLE, cv=RepeatedHashGroupKFold(4, 3, key=KEY))
    assert repeated.shape == (12,)
    assert len(set(repeated.tolist())) > 6


@pytest.mark.slow
def test_scikit_learn_searches_with_it_and_clones_keep_the_key():
    search = GridSearchCV(LogisticRegression(), {"C": [0.01, 1.0]}, cv=HashGroupKFold(3, key=KEY))
    copied = clone(search)
    assert np.array_equal(folds_by(copied.cv, X, Y, PEOPLE), folds_by(HashGroupKFold(3, key=KEY), X, Y, PEOPLE))
    search.fit(X, Y, groups=PEOPLE)
    assert search.n_splits_ == 3
    nested = cross_validate(search, X, Y, cv=3, params={"groups": PEOPLE})
    assert np.isfinite(nested["test_score"]).all()


def test_groups_are_routed_to_it():
    import sklearn

    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(LogisticRegression(), {"C": [0.01, 1.0]}, cv=HashGroupKFold(3, key=KEY))
        nested = cross_validate(search, X, Y, cv=HashGroupKFold(3, key=KEY), params={"groups": PEOPLE})
    assert nested["test_score"].shape == (3,)


@pytest.mark.parametrize("splitter", [HashGroupKFold(4, key=KEY), RepeatedHashGroupKFold(4, 2, key=KEY)])
def test_the_key_shows_in_no_text_and_does_not_travel(splitter):
    hidden = bytes(range(32))
    assert "key=" not in repr(splitter).replace("person_key=", "").replace("patient_key=", "")
    assert "Secret" not in repr(splitter)
    blob = pickle.dumps(splitter)
    assert hidden not in blob
    assert b"Secret" not in blob
    for lost in (pickle.loads(blob), pickle.loads(pickle.dumps(pickle.loads(blob)))):
        with pytest.raises(ConfigurationError, match="the splitter must have its key for arrays"):
            next(lost.split(X, Y, PEOPLE))
    copied = copy.deepcopy(splitter)
    assert np.array_equal(folds_by(copied, X, Y, PEOPLE), folds_by(splitter, X, Y, PEOPLE))
    unkeyed = pickle.loads(pickle.dumps(HashGroupKFold(4)))
    assert np.array_equal(folds_by(unkeyed, X, Y, PEOPLE), folds_by(HashGroupKFold(4), X, Y, PEOPLE))


def test_what_a_splitter_prints():
    expected = (
        "HashGroupKFold(n_splits=4, person_key='identifier', kind='identifier', date_order='iso', patient_key=None, "
        "stratify=True, study=None, repeat=0, max_missing=0.01)"
    )
    assert repr(HashGroupKFold(4, key=KEY)) == expected
    assert repr(FederatedKFold(3)) == "FederatedKFold(n_splits=3, patient_key=None, random_state=0)"


@pytest.mark.parametrize(
    "groups",
    [
        pd.Series(PEOPLE),
        PEOPLE.tolist(),
        PEOPLE.astype(object),
        PEOPLE[:, None],
        np.char.lower(PEOPLE),
    ],
)
def test_identifiers_come_in_many_forms(groups):
    ours = folds_by(HashGroupKFold(4, key=KEY), X, Y, groups)
    assert np.array_equal(ours, folds_by(HashGroupKFold(4, key=KEY), X, Y, PEOPLE))


def test_numbers_and_dates_are_identifiers_too():
    numbers = np.array([int(one[1:]) for one in PEOPLE])
    texts = folds_by(HashGroupKFold(4, key=KEY), X, Y, numbers.astype(str))
    assert np.array_equal(folds_by(HashGroupKFold(4, key=KEY), X, Y, numbers), texts)
    assert np.array_equal(folds_by(HashGroupKFold(4, key=KEY), X, Y, numbers.astype(float)), texts)
    dates = np.datetime64("1950-01-01") + numbers
    by_date = HashGroupKFold(4, kind="date", key=KEY)
    assert np.array_equal(folds_by(by_date, X, Y, dates), folds_by(by_date, X, Y, dates.astype(str)))
    assert np.array_equal(folds_by(by_date, X, Y, pd.to_datetime(pd.Series(dates))), folds_by(by_date, X, Y, dates))


def test_missing_identifiers_are_in_neither_part_and_many_are_refused():
    groups = PEOPLE.astype(object)
    groups[:2] = None, np.nan
    folds = folds_by(HashGroupKFold(4, key=KEY), X, Y, groups)
    assert (folds[:2] == -1).all()
    assert (folds[2:] >= 0).all()
    train, test = next(HashGroupKFold(4, key=KEY).split(X, Y, groups))
    assert not {0, 1} & {*train.tolist(), *test.tolist()}
    groups[:3] = None
    with pytest.raises(DataError, match=r"at most 0\.01 of the records may lack a readable identifier; got 3 of 240"):
        folds_by(HashGroupKFold(4, key=KEY), X, Y, groups)


def test_patients_are_a_second_column():
    groups = np.c_[PEOPLE.astype(object), np.arange(240) // 2]
    groups[1::2, 0] = None
    folds = folds_by(HashGroupKFold(4, patient_key="local", key=KEY), X, Y, groups)
    assert np.array_equal(folds[::2], folds[1::2])
    with pytest.raises(ConfigurationError, match=r"groups must have 2 column\(s\)"):
        folds_by(HashGroupKFold(4, patient_key="local", key=KEY), X, Y, PEOPLE)
    with pytest.raises(ConfigurationError, match=r"groups must have 1 column\(s\)"):
        folds_by(HashGroupKFold(4, key=KEY), X, Y, groups)


def test_without_groups_or_with_orders_by_site_it_says_what_it_needs():
    with pytest.raises(ConfigurationError, match="groups must be identifiers, one per row"):
        folds_by(HashGroupKFold(4), X, Y)
    with pytest.raises(ConfigurationError, match="date_order must be a text for arrays"):
        folds_by(HashGroupKFold(4, kind="date", date_order={"lyon": "dmy"}), X, Y, PEOPLE)
    with pytest.raises(ConfigurationError, match="groups must be names of sites"):
        folds_by(LeaveOneSiteOut(), X, Y)


def test_events_of_survival_times_are_balanced():
    event = np.random.default_rng(1).random(240) < 0.2
    survival = np.array(list(zip(event, np.arange(240.0), strict=True)), dtype=[("event", "?"), ("time", "f8")])
    ours = folds_by(HashGroupKFold(4, key=KEY), X, survival, PEOPLE)
    assert np.array_equal(ours, folds_by(HashGroupKFold(4, key=KEY), X, event, PEOPLE))
    numbers = folds_by(HashGroupKFold(4, key=KEY), X, np.arange(240.0) + 0.5, PEOPLE)
    assert np.array_equal(numbers, folds_by(HashGroupKFold(4, key=KEY), X, None, PEOPLE))


def test_random_folds_and_folds_by_site():
    sites = np.repeat(["lyon", "oslo", "paris"], 80)
    folds = folds_by(LeaveOneSiteOut(), X, Y, sites)
    assert np.array_equal(folds, np.repeat([0, 1, 2], 80))
    assert LeaveOneSiteOut().get_n_splits(groups=sites) == 3
    assert cross_val_score(LogisticRegression(), X, Y, groups=sites, cv=LeaveOneSiteOut()).shape == (3,)
    drawn = folds_by(FederatedKFold(5), X, Y)
    assert np.bincount(drawn).tolist() == [48] * 5
    together = folds_by(FederatedKFold(5), X, Y, PEOPLE)
    assert all(len(set(together[one == PEOPLE].tolist())) == 1 for one in set(PEOPLE.tolist()))

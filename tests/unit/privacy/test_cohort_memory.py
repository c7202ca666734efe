"""The memory of cohorts: fingerprints under a key of its own, differences by patient, files for the owner alone."""

import hashlib
import hmac
import json
import os
import stat

import numpy as np
import pytest

from multicentre.errors import IntegrityError
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.privacy.cohort_memory import ANSWERS, CohortMemory, group_of
from multicentre.survival.cox.site import CoxSite
from multicentre.survival.rsf.site import ForestSite
from multicentre.validation.scoring.numbers import NumberPart

LOST = "the memory of cohorts is damaged or incomplete"


def test_a_fingerprint_is_eight_bytes_of_a_keyed_hash():
    memory = CohortMemory()
    expected = hmac.digest(memory._secret, b"17", "sha256")[:8]
    assert memory.fingerprints([17]).tolist() == [int.from_bytes(expected, "little")]
    assert memory.fingerprints(["17"]).tolist() == memory.fingerprints([17]).tolist()
    assert memory.fingerprints([17]).dtype == np.uint64
    assert memory.fingerprints([]).tolist() == []


def test_two_sites_share_no_fingerprint():
    one, two = CohortMemory(), CohortMemory()
    assert not set(one.fingerprints(range(50)).tolist()) & set(two.fingerprints(range(50)).tolist())


def test_a_cohort_is_a_set_of_patients_in_no_order():
    memory = CohortMemory()
    cohort = memory.fingerprints(["b", "a", "c", "a"])
    assert len(cohort) == 3
    assert cohort.tolist() == sorted(memory.fingerprints(["c", "b", "a"]).tolist())


def test_cohorts_differ_by_patients_who_joined_and_who_left():
    memory = CohortMemory()
    memory.remember(ANSWERS, memory.fingerprints(range(10)))
    assert memory.closest(ANSWERS, memory.fingerprints(range(2, 13))) == 5
    memory.remember(ANSWERS, memory.fingerprints(range(2, 12)))
    assert memory.closest(ANSWERS, memory.fingerprints(range(2, 13))) == 1


def test_groups_are_remembered_apart():
    memory = CohortMemory()
    memory.remember(ANSWERS, memory.fingerprints(range(10)))
    memory.remember("release Gaps", memory.fingerprints(range(5)))
    assert memory.closest(ANSWERS, memory.fingerprints(range(5))) == 5
    assert memory.closest("release Gaps", memory.fingerprints(range(5))) == 0
    assert memory.closest("other", memory.fingerprints(range(5))) is None
    assert CohortMemory().closest(ANSWERS, memory.fingerprints(range(5))) is None


@pytest.mark.parametrize(
    ("asked", "group"),
    [
        (CoxSite.sum_squares, ANSWERS),
        (ForestSite.sum_squares, ANSWERS),
        (MvPPCASite.column_totals, ANSWERS),
        (NumberPart.sum_numbers, ANSWERS),
        (CoxSite.count_gaps, "release Gaps"),
        (ForestSite.report_gaps, "release Gaps"),
        (CoxSite.describe, "release Columns"),
    ],
    ids=["sums", "sums of another method", "sums of another kind", "fixed point", "gaps", "own gaps", "names"],
)
def test_all_answers_are_one_group_except_those_without_values(asked, group):
    assert group_of(asked) == group


@pytest.mark.parametrize("names", [("fed-cox.sums", "fed-rsf.means"), ("step sums", "array sum")])
def test_an_index_of_an_earlier_version_is_one_list_of_answers(names, tmp_path):
    memory = CohortMemory(tmp_path)
    for n in (10, 20):
        memory.remember(ANSWERS, memory.fingerprints(range(n)))
    first, second = json.loads((tmp_path / "answered.json").read_bytes())[ANSWERS]
    (tmp_path / "answered.json").write_text(json.dumps({names[0]: [first], names[1]: [first, second]}))
    again = CohortMemory(tmp_path)
    assert again.closest(ANSWERS, again.fingerprints(range(9))) == 1
    assert again.closest(ANSWERS, again.fingerprints(range(19))) == 1
    again.remember(ANSWERS, again.fingerprints(range(30)))
    index = json.loads((tmp_path / "answered.json").read_bytes())
    assert list(index) == [ANSWERS]
    assert index[ANSWERS][:2] == [first, second]
    assert len(index[ANSWERS]) == 3


def test_a_cohort_near_another_one_is_near_even_if_it_was_answered_for_before():
    memory = CohortMemory()
    for n in (60, 59):
        memory.remember(ANSWERS, memory.fingerprints(range(n)))
    assert memory.closest(ANSWERS, memory.fingerprints(range(60))) == 1
    assert memory.closest(ANSWERS, memory.fingerprints(range(30))) == 29


def test_a_cohort_that_is_answered_again_is_written_once(tmp_path):
    memory = CohortMemory(tmp_path)
    for _ in range(2):
        memory.remember(ANSWERS, memory.fingerprints(range(10)))
    memory.remember("release Gaps", memory.fingerprints(range(10)))
    (path,) = tmp_path.glob("*.cohort")
    index = {ANSWERS: [path.stem], "release Gaps": [path.stem]}
    assert json.loads((tmp_path / "answered.json").read_bytes()) == index
    assert path.stem == hashlib.sha256(path.read_bytes()).hexdigest()[:32]


@pytest.mark.skipif(os.name != "posix", reason="files have modes on POSIX systems only")
def test_nobody_but_the_owner_may_read_the_folder_or_a_file(tmp_path):
    memory = CohortMemory(tmp_path / "site" / "cohorts")
    memory.remember(ANSWERS, memory.fingerprints(range(10)))
    folder = tmp_path / "site" / "cohorts"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("key", "answered.json"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600


def test_no_id_is_written(tmp_path):
    memory = CohortMemory(tmp_path)
    memory.remember(ANSWERS, memory.fingerprints(["patient-of-renown"]))
    assert not any(b"renown" in path.read_bytes() for path in tmp_path.iterdir())


def test_a_memory_in_a_folder_is_continued_with_its_key(tmp_path):
    one = CohortMemory(tmp_path)
    one.remember(ANSWERS, one.fingerprints(range(10)))
    two = CohortMemory(tmp_path)
    assert two.fingerprints(range(10)).tolist() == one.fingerprints(range(10)).tolist()
    assert two.closest(ANSWERS, two.fingerprints(range(9))) == 1
    assert CohortMemory(tmp_path / "other").closest(ANSWERS, two.fingerprints(range(9))) is None


@pytest.mark.parametrize("length", [0, 31, 33])
def test_a_key_of_another_length_is_refused(tmp_path, length):
    memory = CohortMemory(tmp_path)
    memory.remember(ANSWERS, memory.fingerprints(range(10)))
    (tmp_path / "key").write_bytes(bytes(length))
    with pytest.raises(IntegrityError, match=LOST) as caught:
        CohortMemory(tmp_path)
    assert caught.value.where == str(tmp_path)


@pytest.mark.parametrize("content", [b"[]", b"3", b'{"step sums": 3}', b'{"answers": 3}', b'{"answers": ["x"]}', b"{"])
def test_an_index_that_is_none_is_refused_by_folder(tmp_path, content):
    memory = CohortMemory(tmp_path)
    memory.remember(ANSWERS, memory.fingerprints(range(10)))
    (tmp_path / "answered.json").write_bytes(content)
    with pytest.raises(IntegrityError, match=LOST) as caught:
        CohortMemory(tmp_path)
    assert caught.value.where == str(tmp_path)


def test_a_key_alone_is_an_empty_memory_but_an_index_without_its_key_is_refused(tmp_path):
    CohortMemory(tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name != "lock"] == ["key"]
    assert CohortMemory(tmp_path).closest(ANSWERS, CohortMemory(tmp_path).fingerprints([1])) is None
    (tmp_path / "answered.json").write_bytes(b"{}")
    (tmp_path / "key").unlink()
    with pytest.raises(IntegrityError, match=LOST):
        CohortMemory(tmp_path)


@pytest.mark.parametrize("how", ["changed", "gone"])
def test_a_cohort_that_is_changed_or_gone_is_found_when_it_is_compared(tmp_path, how):
    first = CohortMemory(tmp_path)
    first.remember(ANSWERS, first.fingerprints(range(10)))
    memory = CohortMemory(tmp_path)
    (path,) = tmp_path.glob("*.cohort")
    if how == "changed":
        path.write_bytes(path.read_bytes()[:-8])
    else:
        path.unlink()
    with pytest.raises(IntegrityError, match=LOST) as caught:
        memory.closest(ANSWERS, memory.fingerprints(range(9)))
    assert caught.value.where == str(tmp_path)


def test_a_cohort_of_a_crash_before_its_index_was_written_is_let_alone(tmp_path):
    memory = CohortMemory(tmp_path)
    memory.remember(ANSWERS, memory.fingerprints(range(10)))
    orphan = tmp_path / f"{'0' * 32}.cohort"
    orphan.write_bytes(b"")
    assert CohortMemory(tmp_path).closest(ANSWERS, memory.fingerprints(range(9))) == 1


def test_cohorts_differ_by_the_patients_whose_records_differ():
    memory = CohortMemory()
    memory.remember(ANSWERS, memory.fingerprints("aaab", [0, 1, 2, 0]))
    assert memory.closest(ANSWERS, memory.fingerprints("baaa", [0, 2, 1, 0])) == 0
    assert memory.closest(ANSWERS, memory.fingerprints("ab", [0, 0])) == 1
    assert memory.closest(ANSWERS, memory.fingerprints("b", [0])) == 1
    assert memory.closest(ANSWERS, memory.fingerprints("abcc", [1, 0, 0, 1])) == 2


def test_a_patients_only_record_has_the_fingerprint_of_the_patient():
    memory = CohortMemory()
    assert memory.fingerprints("ab", [0, 0]).tolist() == memory.fingerprints("ab").tolist()


def test_records_beyond_the_last_place_are_still_their_patients():
    memory = CohortMemory()
    memory.remember(ANSWERS, memory.fingerprints("a", [70_000]))
    assert memory.closest(ANSWERS, memory.fingerprints("a", [65_535])) == 0
    assert memory.closest(ANSWERS, memory.fingerprints("b", [70_000])) == 2

"""The requester of a run is named in ledger entries of the block that answers it, and in no others."""

import threading

import pytest

from multicentre.core.requester import UNSIGNED, Requester, answering, current_requester, requester_facts

ADA = Requester("ada", "0f1e")


def test_the_requester_is_named_within_the_block_only():
    assert current_requester() is None
    assert requester_facts() == {}
    with answering(ADA):
        assert current_requester() is ADA
        assert requester_facts() == {"requested_by": {"name": "ada", "fingerprint": "0f1e"}}
    assert current_requester() is None
    assert requester_facts() == {}


def test_an_inner_block_names_its_own_requester_and_the_outer_one_again_afterwards():
    with answering(ADA):
        with answering(UNSIGNED):
            assert requester_facts() == {"requested_by": {"name": "coordinator", "fingerprint": None}}
        assert current_requester() is ADA
        with answering(None):
            assert requester_facts() == {}


def test_an_error_ends_the_block():
    with pytest.raises(ZeroDivisionError), answering(ADA):
        raise ZeroDivisionError
    assert current_requester() is None


def test_another_thread_answers_another_requester():
    seen = []
    with answering(ADA):
        thread = threading.Thread(target=lambda: seen.append(requester_facts()))
        thread.start()
        thread.join()
    assert seen == [{}]

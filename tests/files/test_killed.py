"""A process that is killed while it saves leaves the old or the new file, whole, and no budget is spent twice."""

import os

import pytest
from killed_processes import killing

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")


def survive(folder, kills):
    return [int(word) for word in killing(__file__, "killed.py", folder, kills).split()]


def test_a_killed_process_leaves_the_old_or_the_new_state(tmp_path):
    survive(tmp_path, 40)


@pytest.mark.slow
def test_many_killed_processes_leave_the_old_or_the_new_state(tmp_path):
    states, _ = survive(tmp_path, 500)
    assert states == 2, "only one of the two states was ever found"

"""The options of a run reach the background process that makes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clawback.runs.run_options import RunOptions

NUMBERS = st.none() | st.integers(-(2**40), 2**40)


@given(
    st.builds(
        RunOptions,
        algorithm=st.none() | st.sampled_from(["mis-po", "a=b", "x y"]),
        preset=st.none() | st.text(min_size=1, max_size=5),
        seed=NUMBERS,
        resume=NUMBERS,
        prepared=NUMBERS,
        anyway=st.booleans(),
        if_due=st.booleans(),
        fold=st.booleans(),
        processes=st.integers(1, 64),
        shard=st.booleans(),
        draw=st.text(max_size=5),
    )
)
def test_what_is_written_is_read(options: RunOptions) -> None:
    assert RunOptions.from_arguments(options.arguments()) == options


def test_arguments_name_only_what_differs_from_the_settings() -> None:
    assert RunOptions().arguments() == []
    assert RunOptions(algorithm="mis-po", seed=-1, if_due=True).arguments() == [
        "--algorithm=mis-po",
        "--seed=-1",
        "--if-due",
    ]


def test_a_background_process_has_no_cluster() -> None:
    with pytest.raises(ValueError, match="cluster"):
        RunOptions(ray=("auto", 0)).arguments()

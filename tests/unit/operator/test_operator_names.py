from __future__ import annotations

import re
from string import ascii_lowercase, digits

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftmill_operator.render.names import LABEL_VALUE_LIMIT, NAME_LIMIT, child_name, run_label, stem
from draftmill_operator.run import SYNTHRUN, Role, RunKey

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
LABEL_VALUE = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

part = st.text(ascii_lowercase + digits + "-", max_size=42).map(lambda text: text.strip("-") or "0")
run_names = st.lists(part, min_size=1, max_size=6).map(".".join).filter(lambda name: len(name) <= 253)
suffixes = st.tuples(st.just(0), st.integers(1, 99_999))
children = st.one_of(st.tuples(st.sampled_from(Role), st.just(())), st.tuples(st.just(Role.WORKER), suffixes))


def key(name: str, namespace: str = "team") -> RunKey:
    return RunKey(SYNTHRUN, namespace, name)


@given(run_names, children)
def test_every_child_name_is_a_dns_label_of_at_most_52_characters(
    name: str, role_and_numbers: tuple[Role, tuple[int, ...]]
) -> None:
    role, numbers = role_and_numbers
    child = child_name(key(name), role, *numbers)
    assert DNS_1035.fullmatch(child)
    assert len(child) <= NAME_LIMIT


@given(run_names, run_names)
def test_two_runs_never_share_a_stem(one: str, other: str) -> None:
    assert (stem(key(one)) == stem(key(other))) == (one == other)


@given(run_names)
def test_the_run_label_is_a_label_value(name: str) -> None:
    label = run_label(key(name))
    assert LABEL_VALUE.fullmatch(label)
    assert len(label) <= LABEL_VALUE_LIMIT


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("k25-10k", "k25-10k-sr-server"),
        ("a" * 32, "a" * 32 + "-sr-server"),
        ("25k", "r25k-b5642f32-sr-server"),
        ("k2.5", "k2-5-cab58ab9-sr-server"),
        ("a" * 33, "a" * 23 + "-114aee76-sr-server"),
    ],
    ids=["as it is", "longest as it is", "a digit first", "a dot", "too long"],
)
def test_a_name_is_kept_or_sanitised_with_a_hash(name: str, expected: str) -> None:
    assert child_name(key(name), Role.SERVER) == expected


def test_runs_of_one_name_in_two_namespaces_have_different_hashes() -> None:
    assert stem(key("k2.5", "one")) != stem(key("k2.5", "two"))


def test_numbers_too_large_for_the_limit_are_refused() -> None:
    with pytest.raises(ValueError, match="longer than 52"):
        child_name(key("a" * 32), Role.WORKER, 0, 10**12)

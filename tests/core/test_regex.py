"""Patterns that clients send: they mean what Python's mean, and take no more time than the text is long."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core import regex
from headrace.core.regex import InvalidPattern, Pattern


@pytest.mark.parametrize(
    ("pattern", "matching", "others"),
    [
        ("", [""], ["a"]),
        ("abc", ["abc"], ["ab", "abcd", ""]),
        ("a|bc|", ["a", "bc", ""], ["ab"]),
        ("a.*z", ["az", "a--z"], ["a", "a\nz"]),
        ("(ab)+", ["ab", "abab"], ["", "aba"]),
        ("(?:a|b)?c", ["c", "ac", "bc"], ["abc"]),
        ("a{2}", ["aa"], ["a", "aaa"]),
        ("a{2,}", ["aa", "aaaa"], ["a"]),
        ("a{1,3}?b", ["ab", "aaab"], ["b", "aaaab"]),
        (r"tx-\d+", ["tx-1", "tx-20"], ["tx-", "tx-a", "tx-٣"]),
        (r"[\w.-]+", ["a_b.c-d9"], ["a b", ""]),
        (r"[^a-c]\S", ["d!"], ["a!", "d "]),
        ("[]x]", ["]", "x"], ["["]),
        ("[a-]", ["a", "-"], ["b"]),
        (r"\.\\\[", [".\\["], ["a\\["]),
        ("^a$", ["a"], ["^a$", "ba"]),
        ("a^b", [], ["ab", "a^b"]),
        ("(^|x)a", ["a", "xa"], ["ya"]),
        ("a($|b)", ["a", "ab"], ["ac"]),
        ("é+", ["éé"], ["e"]),
        ("a}", ["a}"], ["a"]),
        ("(a*)*", ["", "aaa"], ["b"]),
    ],
)
def test_a_pattern_means_a_whole_text(pattern: str, matching: list[str], others: list[str]) -> None:
    compiled = Pattern(pattern)
    assert [text for text in matching if not compiled.matches(text)] == []
    assert [text for text in others if compiled.matches(text)] == []


@pytest.mark.parametrize(
    "pattern",
    [
        "(",
        ")",
        "a)",
        "[a",
        "[",
        "*a",
        "+",
        "a|?",
        "\\",
        r"\q",
        r"\1",
        "(?=a)",
        "(?P<n>a)",
        "a{",
        "a{x}",
        "a{3,1}",
        "[z-a]",
    ],
)
def test_what_is_no_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidPattern):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["a{400}b{400}", "((a{99}){99}){99}", "a" * 1_001, "(" * 499 + ")" * 499])
def test_a_pattern_has_a_bound(pattern: str) -> None:
    with pytest.raises(InvalidPattern, match=r"more than|at most"):
        Pattern(pattern)


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "a*a*a*a*a*a*b", "(a?){100}a{100}b", ".*.*.*.*.*c"])
def test_patterns_that_take_others_for_ever_take_no_time(pattern: str) -> None:
    """Others need longer than the world is old."""
    assert not Pattern(pattern).matches("a" * 20_000)


def test_what_is_remembered_of_a_pattern_has_a_bound() -> None:
    compiled = Pattern("(.*x.{9}.*)")
    for number in range(3_000):
        compiled.matches(f"{number * 7919:b}".replace("1", "x"))
    assert len(compiled._moves) <= regex.KNOWN_MAX


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", "(a|b)", "(?:ab)", "^", "$", "(a|)"])
PATTERNS = st.lists(st.tuples(ATOMS, st.sampled_from(["", "*", "+", "?", "{2}", "{0,2}", "*?"])), max_size=5).map(
    lambda parts: "".join(atom + ("" if atom in "^$" else times) for atom, times in parts)
)


@given(PATTERNS, st.text("ab1", max_size=6))
def test_it_agrees_with_python(pattern: str, text: str) -> None:
    assert Pattern(pattern).matches(text) is (re.fullmatch(pattern, text) is not None)

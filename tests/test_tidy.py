"""The tree is tidy, and each rule of tools/tidy.py finds what it is for."""

import pytest

from tools.tidy import FILE_LINES_MAX, FUNCTION_LINES_MAX, untidiness, violations

LONG_FUNCTION = "def f() -> None:\n" + "    x = 1\n" * FUNCTION_LINES_MAX


def said_of(name: str, text: str) -> list[str]:
    return [sentence for _, sentence in untidiness(name, text)]


def test_the_tree_is_tidy() -> None:
    assert violations() == []


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("a.py", "x = 1  # TO" + "DO later\n", "holds a note to do it later"),
        ("a.md", "see /ro" + "ot/x\n", "holds a path of one machine"),
        ("a.mk", "pip install -i https://py" + "pi.org/simple\n", "holds the address of a package registry"),
        ("a.md", "<" * 7 + " ours\n", "holds a conflict marker"),
        ("a.md", "text \n", "holds white space at the end of a line"),
        ("a.md", "text\r\n", "holds white space at the end of a line"),
        ("a.py", "if x:\n\ty\n", "holds a tab"),
        ("a.py", "x = 1  # type: ig" + "nore[misc]\n", "holds type: ignore without its code and a reason"),
        ("a.py", "x = 1  # no" + "qa: E501\n", "holds noqa without its code and a reason"),
        ("a.py", "try:\n    pass\nexcept Exception:\n    pass\n", "holds a catch-all without a reason beside it"),
        ("a.py", "try:\n    pass\nexcept:\n    pass\n", "holds a catch-all without a reason beside it"),
        ("a.py", "x = 1", "does not end with exactly one newline"),
        ("a.py", "x = 1\n\n", "does not end with exactly one newline"),
        ("a.py", "x = 1\n" * (FILE_LINES_MAX + 1), f"is longer than {FILE_LINES_MAX} lines: split it"),
        ("src/headrace/broker/x.py", "print(1)\n", "prints; only the command line does"),
        ("a.py", LONG_FUNCTION, "f has 61 lines, more than 60: split it"),
    ],
)
def test_untidiness_is_found(name: str, text: str, sentence: str) -> None:
    assert said_of(name, text) == [sentence]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", ""),
        ("a.py", "x = 1\n"),
        ("a.py", "x = 1\n" * FILE_LINES_MAX),
        ("a.py", "x = 1  # type: ig" + "nore[misc]  # the library has no types\n"),
        ("a.py", "try:\n    pass\nexcept Exception:  # a plug-in may raise anything\n    pass\n"),
        ("src/headrace/cli/x.py", "print(1)\n"),
        ("a.md", "a path such as /var/lib/headrace, and a/wo" + "rk/b\n"),
    ],
)
def test_what_is_tidy_is_not_reported(name: str, text: str) -> None:
    assert said_of(name, text) == []

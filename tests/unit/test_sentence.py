"""An error's text as it is sent and logged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferq.contract.errors import InvalidRequest, sentence


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("tensor 'größe': 3 °C", "tensor 'größe': 3 °C"),
        ("a\nERROR forged", "a\\nERROR forged"),
        ("a\x1b[31mb\x7f", "a\\x1b[31mb\\x7f"),
        ("\u2028\u202e", "\\u2028\\u202e"),
        ("file \udcff", "file \\udcff"),
        ("x" * 500, "x" * 500),
        ("x" * 501, "x" * 497 + "..."),
    ],
)
def test_table(text: str, shown: str) -> None:
    """Printable text stays; line breaks, terminal codes and lone surrogates are spelled out."""
    assert sentence(InvalidRequest(text)) == shown


@given(st.text(st.characters(), max_size=2_000))
def test_any_text(text: str) -> None:
    """Whatever an error holds, its sentence is printable, encodes, and is at most 500 long."""
    shown = sentence(InvalidRequest(text))
    assert shown.isprintable()
    shown.encode()
    assert len(shown) <= 500

"""A script's header says what its body does: the same keys, the same arguments, nothing made up."""

import hashlib
import re
from collections.abc import Iterator
from importlib import resources

import pytest

from inferq.contract import scripts

FOLDER = resources.files("inferq.contract") / "lua"
# Where a command has its keys, counted from its name; every other command has one, the first.
KEY_PLACES = {"TIME": slice(0), "LMOVE": slice(2), "EXISTS": slice(None)}


def source_of(name: str) -> str:
    return (FOLDER / f"{name}.lua").read_text()


def header_of(name: str) -> str:
    return re.match(r"#![^\n]*\n((?:--[^\n]*\n)+)", source_of(name))[1]  # type: ignore[index]


def body_of(name: str) -> str:
    """Return the code alone, without header, comments and line breaks."""
    code = source_of(name).partition("\n\n")[2]
    return re.sub(r"\s+", " ", re.sub(r"--[^\n]*", "", code))


def places_in(body: str) -> set[str]:
    """Return every KEYS[n] and ARGV[n] of a body; a computed index is written as its run.

    ``KEYS[9 + reply]`` in a loop from 1, and ``ARGV[at]`` where ``at`` begins with a number, stand
    for the run that begins there: ``KEYS[10...]``. Other names in an index stay in it.
    """
    found = {f"{array}[{n}]" for array, n in re.findall(r"\b(KEYS|ARGV)\[(\d+)\]", body)}
    firsts = {
        name: int(number)
        for name, number in re.findall(r"\b(?:for|local) (\w+) = (\d+)\b", body)[::-1]
    }
    computed = re.findall(r"\b(KEYS|ARGV)\[([^\]]*[a-z][^\]]*)\]", body)
    computed += re.findall(r"\bunpack\((KEYS|ARGV), ([^,)]+)", body)
    runs: dict[tuple[str, str], int] = {}
    for array, index in computed:
        start, names = 0, ""
        for sign, term in re.findall(r"([+-]?) ?(\w+)", index):
            if term.isdigit() or term in firsts:
                value = firsts.get(term) or int(term)
                start += -value if sign == "-" else value
            else:
                names += f"+{term}"
        runs[array, names] = min(start, runs.get((array, names), start))
    return found | {f"{array}[{start}{names}...]" for (array, names), start in runs.items()}


def commands_in(body: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each command that a body sends, with its arguments as they are written."""
    for call in re.finditer(r"redis\.p?call\(", body):
        depth, parts = 0, [""]
        for character in body[call.end() :]:
            depth += (character in "([{") - (character in ")]}")
            if depth < 0:
                break
            if character == "," and depth == 0:
                parts.append("")
            else:
                parts[-1] += character
        yield parts[0].strip(" '\""), [part.strip() for part in parts[1:]]


@pytest.mark.parametrize(
    ("body", "places"),
    [
        ("local a, b = KEYS[1], ARGV[12]", {"KEYS[1]", "ARGV[12]"}),
        ("for at = 3, #KEYS do f(KEYS[at]) end", {"KEYS[3...]"}),
        ("local at = 9 f(ARGV[at + 2], ARGV[at + 1]) f(ARGV[at])", {"ARGV[9...]"}),
        ("for at = 3, #ARGV do f(ARGV[at], KEYS[at - 1]) end", {"ARGV[3...]", "KEYS[2...]"}),
        ("for box = 1, boxes do f(KEYS[9 + replies + box]) end", {"KEYS[10+replies...]"}),
        ("f(unpack(KEYS, 3)) f(unpack(ARGV, 5, 9))", {"KEYS[3...]", "ARGV[5...]"}),
    ],
)
def test_computed_indexes(body: str, places: set[str]) -> None:
    """The reading of a body that the tests below rest on sees every kind of index."""
    assert places_in(body) == places


def test_every_file_is_known() -> None:
    """A file that is not in ALL would never be loaded, and a name without a file cannot be."""
    files = {file.name.removesuffix(".lua") for file in FOLDER.iterdir()}
    assert files == set(scripts.ALL)
    assert len(scripts.ALL) == len(files)


@pytest.mark.parametrize("name", scripts.ALL)
def test_shebang(name: str) -> None:
    """Every script names its engine (undeclared keys are refused then); only two obey the limit."""
    expected = "#!lua" if name in {"submit", "retry"} else "#!lua flags=allow-oom"
    assert source_of(name).partition("\n")[0] == expected


@pytest.mark.parametrize("name", scripts.ALL)
def test_header_matches_body(name: str) -> None:
    """Every key and argument that the body uses is in the header, and the reverse."""
    script = scripts.load(name)
    assert {operand.place for operand in (*script.keys, *script.args)} == places_in(body_of(name))


@pytest.mark.parametrize("name", scripts.ALL)
def test_loader_reads_the_whole_header(name: str) -> None:
    """No line of a header is lost on the way into its Script, and none is made up."""
    script = scripts.load(name)
    entries = re.findall(r"^-- (KEYS\[|ARGV\[|Returns )", header_of(name), re.MULTILINE)
    parsed = [*script.keys, *script.args, *script.returns]
    assert len(entries) == len(parsed)
    header = re.sub(r"\n--\s+", " ", header_of(name))
    for operand in (*script.keys, *script.args):
        assert f"{operand.place} {operand.name} - {operand.meaning}" in header
    for answer in script.returns:
        assert f"Returns {answer.form} - {answer.meaning}" in header
    assert script.source == source_of(name)
    assert script.sha1 == hashlib.sha1(script.source.encode()).hexdigest()


@pytest.mark.parametrize("name", scripts.ALL)
def test_header_is_complete(name: str) -> None:
    """A header has its sentence, its operands in order, its answers, and why it may run twice."""
    header, script = header_of(name), scripts.load(name)
    assert re.match(r"-- [A-Z][^.]+\.\n--\n", header)
    assert "\n-- Twice: " in header
    assert script.returns
    for array, operands in (("KEYS", script.keys), ("ARGV", script.args)):
        numbers = [re.match(rf"{array}\[(\d+)", operand.place) for operand in operands]
        starts = [int(number[1]) for number in numbers if number]
        assert starts == sorted(starts)
        assert starts[:1] == [1]
        assert set(starts) == set(range(1, len(set(starts)) + 1))


@pytest.mark.parametrize("name", scripts.ALL)
def test_keys_are_declared(name: str) -> None:
    """A key is what the caller named, never something that the script put together or looked up."""
    body = body_of(name)
    used = set()
    for command, arguments in commands_in(body):
        assert command.isupper(), f"{command} is not the name of a command"
        assert command not in {"KEYS", "SCAN"}
        for argument in arguments[KEY_PLACES.get(command, slice(1))]:
            assert re.fullmatch(r"\w+(\.key)?|(KEYS|unpack\(KEYS)[^.]*", argument), argument
            used.add(argument)
    made = {name for name, value in re.findall(r"local (\w+) = ([^=]*)", body) if ".." in value}
    assert not used & made
    keys = {
        key for names in re.findall(r"local ([\w, ]+) = KEYS\[", body) for key in names.split(", ")
    }
    joined = {name for pair in re.findall(r"(\w*\]?) \.\. (\w*)", body) for name in pair}
    assert not joined & (keys | {"KEYS"})


def test_unknown_name() -> None:
    """Asking for a script that is not there says which are."""
    with pytest.raises(ValueError, match=r"'clam'.*claim"):
        scripts.load("clam")


def test_loaded_once() -> None:
    """A script is read once and shared."""
    assert scripts.load("claim") is scripts.load("claim")

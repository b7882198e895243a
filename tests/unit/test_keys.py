"""No name leaves its namespace, and all keys of a model live in one cluster slot."""

import re
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from redis.crc import key_slot

from inferq.contract.errors import InferqError, InvalidRequest, InvalidSetting
from inferq.contract.keys import (
    BOX_PATTERN,
    ID_PATTERN,
    LANES,
    MODEL_PATTERN,
    PREFIX_PATTERN,
    Keys,
    check_box,
    check_id,
    check_model,
    check_prefix,
    models_key,
    worker_id,
)

Check = Callable[[object], str]

GOOD: list[tuple[Check, str]] = [
    (check_id, "r1"),
    (check_id, "a" * 128),
    (check_id, "..:-_.Z9"),
    (check_id, "-"),
    (check_box, "b"),
    (check_box, "_" * 64),
    (check_model, "digits"),
    (check_model, "Digits-v2.1_x"),
    (check_model, "9" * 128),
    (check_model, "Stats"),
    (check_prefix, "inferq"),
    (check_prefix, "team:a.b_c-d"),
    (check_prefix, "x" * 64),
]

BAD: list[tuple[Check, object]] = [
    (check_id, ""),
    (check_id, "r1\n"),
    (check_id, "\nr1"),
    (check_id, "a b"),
    (check_id, "a\0b"),
    (check_id, "{a}"),
    (check_id, "a/b"),
    (check_id, "é"),
    (check_id, "٣"),
    (check_id, "\uff41"),
    (check_id, "😀"),
    (check_id, "\ud800"),
    (check_id, "a" * 129),
    (check_id, "a" * 10**6),
    (check_id, None),
    (check_id, 5),
    (check_id, b"r1"),
    (check_id, ["r1"]),
    (check_box, ""),
    (check_box, "a:b"),
    (check_box, "box\n"),
    (check_box, "b" * 65),
    (check_box, "{b}"),
    (check_box, None),
    (check_model, ""),
    (check_model, "-digits"),
    (check_model, ".digits"),
    (check_model, "a:b"),
    (check_model, "a~1"),
    (check_model, "digits\n"),
    (check_model, "{digits}"),
    (check_model, "ünder"),
    (check_model, "d" * 129),
    (check_model, "stats"),
    (check_model, "models"),
    (check_model, None),
    (check_prefix, ""),
    (check_prefix, ":inferq"),
    (check_prefix, "in{fer"),
    (check_prefix, "inferq\n"),
    (check_prefix, "p" * 65),
    (check_prefix, 1),
]


@pytest.mark.parametrize(("check", "name"), GOOD)
def test_names_that_are_allowed(check: Check, name: str) -> None:
    """A name within its rule comes back as it is."""
    assert check(name) == name


@pytest.mark.parametrize(("check", "name"), BAD)
def test_names_that_are_not(check: Check, name: object) -> None:
    """Every other name is refused in one short printable sentence that shows it and the rule."""
    with pytest.raises(InferqError) as caught:
        check(name)
    assert isinstance(caught.value, InvalidSetting if check is check_prefix else InvalidRequest)
    sentence = str(caught.value)
    assert sentence.isprintable()
    assert len(sentence) < 250
    assert re.search(r"expected 1 to \d+ letters|reserved: choose another", sentence)


@pytest.mark.parametrize(
    ("check", "pattern"),
    [
        (check_id, ID_PATTERN),
        (check_box, BOX_PATTERN),
        (check_model, MODEL_PATTERN),
        (check_prefix, PREFIX_PATTERN),
    ],
)
@given(name=st.text(max_size=6) | st.text(alphabet="aZ9._:-~{} \n", max_size=6))
def test_the_rules_are_ascii(check: Check, pattern: str, name: str) -> None:
    """What passes is plain ASCII without braces, blanks and line ends, and fits its pattern."""
    try:
        check(name)
    except InferqError:
        assert not re.match(pattern, name)
    else:
        assert re.fullmatch(r"[A-Za-z0-9._:-]+", name, re.ASCII)


models = st.from_regex(MODEL_PATTERN, fullmatch=True)
ids = st.from_regex(ID_PATTERN, fullmatch=True)
boxes = st.from_regex(BOX_PATTERN, fullmatch=True)
prefixes = st.from_regex(PREFIX_PATTERN, fullmatch=True)


def all_keys(keys: Keys, request_id: str, box: str) -> list[str]:
    return [
        *(keys.lane(lane) for lane in LANES), keys.returned, keys.suspects,
        keys.claimed(box, 7), keys.claims, keys.closed, keys.reply(request_id), keys.inbox(box),
        keys.cancelled, keys.dead, keys.metrics, keys.description, keys.workers, keys.worker(box),
    ]  # fmt: skip


def test_spelling() -> None:
    """The keys are spelled as the contract says: other languages build them too."""
    keys = Keys("inferq", "digits")
    assert keys.normal == keys.lane("normal") == "inferq:digits"
    assert all_keys(keys, "r1", "B") == [
        "{inferq:digits}:high", "inferq:digits", "{inferq:digits}:low",
        "{inferq:digits}:returned", "{inferq:digits}:suspects", "{inferq:digits}:claimed:B:7",
        "{inferq:digits}:claims", "{inferq:digits}:closed", "{inferq:digits}:reply:r1",
        "{inferq:digits}:inbox:B", "{inferq:digits}:cancelled", "{inferq:digits}:dead",
        "{inferq:digits}:metrics", "{inferq:digits}:model", "{inferq:digits}:workers",
        "{inferq:digits}:worker:B",
    ]  # fmt: skip
    assert models_key("inferq") == "inferq:models"


@given(prefix=prefixes, model=models, request_id=ids, box=boxes)
def test_one_slot(prefix: str, model: str, request_id: str, box: str) -> None:
    """All keys of a model are different and live in one cluster slot, whatever its name."""
    keys = all_keys(Keys(prefix, model), request_id, box)
    assert len(set(keys)) == len(keys)
    assert len({key_slot(key.encode()) for key in keys}) == 1


@given(prefix=prefixes, model=models, other=models, request_id=ids, box=boxes)
def test_no_crosstalk(prefix: str, model: str, other: str, request_id: str, box: str) -> None:
    """Two models under one prefix share no key, also where one name begins with the other."""
    assume(model != other)
    mine = all_keys(Keys(prefix, model), request_id, box)
    for name in (other, model + "0", model + ".reply"):
        assert not set(mine) & set(all_keys(Keys(prefix, name), request_id, box))


@given(
    host=st.text(max_size=80),
    pid=st.integers(1, 2**22),
    nonce=st.from_regex(r"[0-9a-f]{8}", fullmatch=True),
)
def test_worker_ids(host: str, pid: int, nonce: str) -> None:
    """A worker's id is a legal name from any host name, and keeps its pid and nonce."""
    name = worker_id(host, pid, nonce)
    assert check_box(name) == name
    assert name.endswith(f"-{pid}-{nonce}")

import pytest

from bot import policy
from bot.signals.xid import LAST, codes, table, xid

ACTIONS = ("none", "restart_app", "reset_idle", "reset", "reboot", "test", "repair")

# The codes that reports confuse or that decide most: what they mean for the node.
TABLE = {
    13: ("restart_app", True),
    31: ("restart_app", True),
    43: ("none", True),
    45: ("none", False),
    48: ("reset", False),
    63: ("reset_idle", False),
    64: ("repair", False),
    74: ("test", False),
    79: ("reboot", False),
    94: ("restart_app", False),
    95: ("reset", False),
    119: ("reset", False),
    140: ("reset", False),
    145: ("test", False),
    149: ("test", False),
    150: ("reset", False),
    154: ("none", False),
}


@pytest.mark.parametrize(("code", "meaning"), TABLE.items())
def test_a_code_says_what_has_to_happen_and_whose_fault_it_is(code: int, meaning: tuple[str, bool]) -> None:
    assert (xid(code).action, xid(code).application) == meaning
    assert code in codes((meaning[0],))


def test_an_unknown_code_wants_a_test() -> None:
    assert (xid(999).name, xid(999).action, xid(999).code) == ("unknown Xid 999", "test", 999)
    assert 200 in codes(("test",)) and 200 not in table()


def test_every_code_has_one_action() -> None:
    found = [code for action in ACTIONS for code in codes((action,))]
    assert sorted(found) == list(range(1, LAST + 1))
    assert codes(ACTIONS) == tuple(range(1, LAST + 1))
    assert max(table()) < LAST


def test_the_catalogue_asks_for_every_action_but_none() -> None:
    signals = policy.signals(None).values()
    asked = [action for signal in signals for action in signal.xid_action]
    assert sorted(asked) == sorted(set(ACTIONS) - {"none"})


@pytest.mark.parametrize("code", table())
def test_names_fit_into_a_sentence(code: int) -> None:
    name = xid(code).name
    assert name and len(name) <= 45 and not name.endswith(".")

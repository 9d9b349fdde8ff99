"""The targets of fuzzing, on what it found and on a few mutations of good input."""

import random

import pytest

from benchmarks.robustness.fuzz_targets import SEEDS, TARGETS

OCTETS = b'\x00\x01\n "#-.09:[]e{}\xff'
FOUND = {
    "a control code is no white space": ("letor", b"1 qid:1 1:2\x002:3\n"),
    "nor beside a number that is read slowly": ("letor", b"1 qid:1 1:+2\x1c2:3\n"),
    "a label that float32 cannot hold": ("letor", b"1e39 qid:1 1:1\n"),
    "identifiers that are not UTF-8": ("letor", b"1 qid:\xff 1:1\n1 qid:\xfe 1:1\n"),
    "nor escaped to one that is there": ("letor", b"1 qid:\xe2 1:1\n1 qid:\\xe2 1:1\n"),
    "an index is digits alone": ("letor", b"2 qid:1 1.:0.5\n5\n"),
    "an index beyond all integers": ("letor", b"1 qid:1 %s:1\n" % (b"1" * 5000)),
    "an instance nested deeply": ("json", b'{"instances": [%s]}' % (b"[" * 3000 + b"]" * 3000)),
    "a name that is not UTF-8": ("json", b'{"instances": [{"\xff": 1}]}'),
    "a configuration of no model": ("config", b"model_config_list {}"),
    "a configuration that is not UTF-8": ("config", b"\xff"),
}


@pytest.mark.parametrize(("target", "octets"), FOUND.values(), ids=FOUND)
def test_what_fuzzing_found_stays_mended(target, octets):
    TARGETS[target](octets)


@pytest.mark.parametrize("target", TARGETS)
def test_the_rules_hold_of_good_input_and_of_mutations(target):
    chance = random.Random(target)
    for seed in SEEDS[target]:
        TARGETS[target](seed)
        for _ in range(30):
            mutated = bytearray(seed)
            for _ in range(chance.randint(1, 3)):
                start = chance.randrange(len(mutated) or 1)
                part = bytes(chance.choices(b'\x00\x01\n "#-.09:[]e{}\xff', k=chance.randint(0, 2)))
                mutated[start : start + chance.randint(0, 2)] = part
            TARGETS[target](bytes(mutated))

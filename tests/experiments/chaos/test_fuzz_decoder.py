from pdlrecover.engines.peers.protocol import codec
from pdlrecover.experiments.chaos.fuzz_decoder import MOST_PROBLEMS, fuzz_decoder
from pdlrecover.experiments.chaos.odd_messages import KINDS, OddMessages


def test_mutated_messages_are_read_or_refused_and_nothing_else():
    told = []
    found = fuzz_decoder(20_000, 1, told.append)
    assert found.problems == ()
    assert found.messages == found.read + found.refused == 20_000
    assert min(found.read, found.refused) > 2_000
    assert len(told) == 20


def test_another_exception_of_a_decoder_is_a_problem_and_ends_the_run():
    def broken(data):
        if data[-1] == 0:
            raise IndexError("one too far")
        return codec.decode(data)

    found = fuzz_decoder(20_000, 1, lambda _: None, broken)
    assert len(found.problems) == MOST_PROBLEMS
    assert found.problems[0].startswith("IndexError: one too far, of ")


def test_a_message_that_is_read_as_another_is_a_problem():
    odd = OddMessages("other", 5)
    other = codec.decode(codec.encode(odd.header(0), odd.body(KINDS[0]), lambda _: bytes(64)))
    found = fuzz_decoder(2_000, 1, lambda _: None, lambda data: other)
    assert found.problems[0].startswith("read and written otherwise: ")


def test_every_kind_of_message_is_drawn_and_can_be_read():
    odd = OddMessages("all", 5)
    for kind in KINDS:
        for _ in range(20):
            data = codec.encode(odd.header(1), odd.body(kind), lambda _: bytes(64))
            assert type(codec.decode(data).body) is kind


def test_signed_odd_messages_can_be_read_are_the_senders_and_differ():
    odd = OddMessages("signed", 5)
    first = codec.encode(odd.header(1), odd.body(KINDS[1]), lambda _: bytes(64))
    odd.see(codec.decode(first))
    drawn = [odd.signed(4, lambda data: data[-64:]) for _ in range(200)]
    envelopes = [codec.decode(data) for data in drawn]
    assert {envelope.header.sender for envelope in envelopes} == {4}
    assert all(envelope.signature == envelope.signed[-64:] for envelope in envelopes)
    assert len({type(envelope.body) for envelope in envelopes}) == len(KINDS)
    assert len(set(drawn)) > 100

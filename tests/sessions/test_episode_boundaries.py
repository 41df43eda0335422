"""Where a run of messages ends: silence, size, topic; and that it does not matter in how many steps one asks."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from commonbook.engines.embedders.static_table import Floats, StaticTable
from commonbook.subjects.recall.indexed_passages import embedding_input
from commonbook.subjects.sessions.episode_boundaries import (
    BoundaryInput,
    Limits,
    Segment,
    cohesion,
    estimate_tokens,
    segments,
)

START = datetime(2026, 5, 4, 9, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LATER = timedelta(days=30)


def chat(
    *texts: str, role: str = "", every: timedelta = MINUTE, after: Sequence[BoundaryInput] = ()
) -> list[BoundaryInput]:
    """Messages in turn by a user and an assistant, unless a role is given."""
    first, start = (after[-1].seq + 1, after[-1].time + every) if after else (1, START)
    return [*after] + [
        BoundaryInput(first + at, role or ("user", "assistant")[at % 2], start + at * every, text)
        for at, text in enumerate(texts)
    ]


def cut(messages: Sequence[BoundaryInput], *, wait: timedelta = timedelta(0), **more) -> list[tuple[int, int, str]]:
    found = segments(messages, now=messages[-1].time + wait, **more)
    return [(run.first, run.last, run.reason) for run in found]


# --- silence


def test_a_silence_ends_a_run_and_the_last_one_stays_open():
    morning = chat("Good morning.", "Morning! What is up?", "My tap drips.", "Change the washer.")
    evening = chat("Good.", after=chat("It is dry now.", every=timedelta(hours=5), after=morning))
    assert cut(evening) == [(1, 4, "gap")]
    assert cut(morning) == []
    assert cut(morning, wait=timedelta(minutes=59)) == []
    assert cut(morning, wait=timedelta(hours=1)) == [(1, 4, "gap")]
    assert cut(morning, flush=True) == [(1, 4, "flush")]
    assert segments([], now=START, flush=True) == []


def test_an_hour_of_silence_ends_a_run_regardless_of_who_spoke_last():
    question = chat("Hello.", "Hello.", "Is the report done?")
    assert cut(question, wait=timedelta(minutes=59)) == []
    assert cut(question, wait=timedelta(hours=1)) == [(1, 3, "gap")]
    answered = chat("It is.", role="assistant", every=timedelta(hours=3), after=question)
    assert cut(answered, wait=timedelta(hours=1)) == [(1, 3, "gap"), (4, 4, "gap")]
    called = [*question[:2], BoundaryInput(3, "tool_call", START + 2 * MINUTE, "run the tests")]
    result = [*called, BoundaryInput(4, "tool", START + timedelta(hours=4), "all passed")]
    assert cut(result, wait=timedelta(hours=1)) == [(1, 3, "gap"), (4, 4, "gap")]


def test_clocks_that_go_backwards_end_nothing():
    messages = [BoundaryInput(at, "assistant", START - at * timedelta(hours=2), "tick") for at in range(5)]
    assert segments(messages, now=START) != []
    assert segments(messages[:-1], now=messages[-2].time) == []


# --- size


def test_a_run_has_no_more_messages_and_tokens_than_a_reader_can_take():
    limits = Limits(messages=10, tokens=1_000)
    talk = chat(*["Some words of ours."] * 25)
    assert cut(talk, limits=limits) == [(1, 10, "size"), (11, 20, "size")]
    assert cut(talk, limits=limits, flush=True) == [(1, 10, "size"), (11, 20, "size"), (21, 25, "flush")]
    long = chat(*["words " * 200] * 8)
    assert cut(long, limits=limits) == [(1, 2, "size"), (3, 4, "size"), (5, 6, "size")]


def test_a_message_larger_than_the_limit_is_a_run_of_its_own():
    limits = Limits(tokens=100)
    messages = chat("One.", "Two.", "three " * 100, "Four.", "five " * 100)
    assert cut(messages, limits=limits) == [(1, 2, "size"), (3, 3, "size"), (4, 4, "size"), (5, 5, "size")]


def test_tokens_are_guessed_from_the_bytes():
    assert estimate_tokens("") == 1
    assert estimate_tokens("four letters and more of them") == 8
    assert estimate_tokens("\u65e5\u672c\u8a9e" * 4) == 10
    assert estimate_tokens("\ud800") == 1


def test_a_call_keeps_its_answer_and_a_question_its_reply():
    roles = [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
        "assistant",
        "tool",
        "assistant",
    ]
    messages = [BoundaryInput(at, role, START, "text") for at, role in enumerate(roles)]
    assert [cohesion(before, after) for before, after in pairwise(messages)] == [1, 2, 0, 2, 2, 0, 0, 1, 2, 0]
    assert cut(messages, limits=Limits(messages=5))[0] == (0, 2, "size")
    assert cut(messages, limits=Limits(messages=6))[0] == (0, 5, "size")
    assert cut(messages, limits=Limits(messages=8))[0] == (0, 6, "size")


# --- topic


GARDEN = """The tomatoes have flowers since Sunday, the ones in the big pots.
Lovely! My tomato plants are still small, the soil is too cold for them.
Put compost on the soil, and water the roots in the morning.
I water the beds every evening, and the lettuce grows well.
The slugs eat my lettuce leaves every night, it is a sad garden bed.
Try a ring of sand around the plants, or collect the slugs at dusk.
Sand is a good idea for the seedlings. The beans are climbing already.
My beans need longer sticks. The peas have pods, we ate some.
Fresh peas from the garden are the best thing in June.
I want to plant strawberries along the fence, in the sunny soil.
Strawberries like straw under the fruit, and compost in spring.
We have straw. The apple tree has lots of blossoms this year.
Prune the apple tree in winter, cut the branches that cross.
I pruned the roses and the currant bushes, the tree is next.
The roses have lice on the leaves, I spray them with soap.
Soap water helps. Ladybirds eat the lice on roses too.
I planted lavender next to the roses, the bees love the flowers.
Bees everywhere in our herb bed, the thyme and the sage flower.
The basil died in the cold night, I sow new seeds today.
Sow the basil seeds inside, on a warm window with light soil.
And the pumpkins? Did the seeds come up in the compost?
The pumpkin plants have four leaves, they grow next to the beans."""

BIKE = """My bicycle makes a noise when I pedal, a click from the chain.
Clean the chain and oil it, an old chain clicks on the sprockets.
I cleaned it, and the gears still jump when I shift uphill.
Then the derailleur is bent, or the shift cable is too loose.
The cable is new, the mechanic at the bike shop replaced it.
Turn the barrel adjuster at the derailleur half a turn and ride.
It shifts better now. The rear brake squeals on wet rims.
Sand the brake pads a little and clean the rims with alcohol.
The pads are worn, I order new brake pads for the wheel.
Check the tyres too, how much pressure is in the front tyre?
Four bar. I had a flat tyre last week, a nail in the tube.
Carry a spare tube and a pump on every ride, and tyre levers.
The pump is on the frame. The saddle hurts on a long ride.
Lower the saddle a bit, the knee is bent at the pedal then.
I rode forty kilometres along the river, the handlebar is fine.
With a lighter wheel and good tyres you ride sixty in that time.
The wheel has a broken spoke at the back, it wobbles.
Replace the spoke soon, and true the wheel with a spoke key.
The shop trues wheels on Friday, and checks the bottom bracket.
Ask them about the pedals and the headset, both need grease.
The headlight on the handlebar works, the dynamo hub is quiet.
A good bike then! We ride the pass road with the new brakes."""

INTERVIEW = """I have a job interview at the insurance company on Monday.
Congratulations! Is it the position as a data analyst?
Yes, the salary is better, and the manager was kind by phone.
Prepare a story about a project that you led in your team.
I led the migration of the reports, with two colleagues.
Tell them the result, and what the management said about it.
The director praised our team, and my contract was extended.
Then ask for the salary that you want, with a number.
The recruiter said the budget for the position is flexible.
Ask about working hours, home office and the trial period.
Home office is three days, the office is near the station.
What does the contract say about overtime and holidays?
Thirty days of holiday, overtime is paid, says the recruiter.
Good conditions. Who else is in the interview on Monday?
The manager of the department and somebody from human resources.
Human resources ask about weaknesses and why you leave your employer.
I leave because there is no career for analysts in my company.
Say that you look for responsibility, a career and a bigger team.
And my notice period is three months, the employer must agree.
Most companies wait three months for a good candidate.
My application has references from two managers.
Send the certificates too, the department will read your application."""

SESSIONS = [text.split("\n") for text in (GARDEN, BIKE, INTERVIEW)]
TABLE = StaticTable()


@cache
def vector(text: str) -> Floats:
    return np.asarray(TABLE.embed([embedding_input(text)])[0])


def similarity(before: Sequence[str], after: Sequence[str]) -> float:
    """The cosine between two windows, each the sum of its messages."""
    one, other = (np.sum([vector(text) for text in window], axis=0) for window in (before, after))
    return float(one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-9))


def in_sessions(gap: timedelta) -> list[BoundaryInput]:
    messages: list[BoundaryInput] = []
    for session in SESSIONS:
        resumed = chat(*session, role="user", after=messages)
        messages = messages + [
            message._replace(time=message.time + gap * bool(messages)) for message in resumed[len(messages) :]
        ]
    return messages


def test_sessions_that_are_days_apart_fall_as_they_were_held():
    messages = in_sessions(timedelta(days=3))
    held = [(1, 22, "gap"), (23, 44, "gap")]
    assert cut(messages, similarity=similarity) == held
    assert cut(messages, similarity=similarity, flush=True) == [*held, (45, 66, "flush")]
    assert cut(messages, similarity=similarity, wait=timedelta(days=1)) == [*held, (45, 66, "gap")]


def test_without_their_gaps_they_fall_where_the_topic_shifts():
    found = cut(in_sessions(timedelta(0)), similarity=similarity, flush=True)
    assert [reason for *_, reason in found] == ["topic", "topic", "flush"]
    assert all(abs(last - seam) <= 2 for (_, last, _), seam in zip(found, (22, 44), strict=False))
    assert cut(in_sessions(timedelta(0)), flush=True) == [(1, 60, "size"), (61, 66, "flush")]


def test_a_run_that_is_too_long_is_cut_at_its_weakest_seam():
    # A shift too faint to end a run by itself.
    found = cut(in_sessions(timedelta(0)), similarity=similarity, flush=True, limits=Limits(messages=40, shift=0.9))
    assert [reason for *_, reason in found] == ["size", "size", "flush"]
    assert abs(found[0][1] - 22) <= 2


# --- what holds for all

ROLES = st.sampled_from(["user", "assistant", "tool", "tool_call", "system", "human"])
TEXTS = st.sampled_from(["", "yes", "why?", "cat cat", "dog dog", "cat dog", "word " * 9, "long " * 40])
STEPS = st.sampled_from([timedelta(seconds=1), MINUTE, timedelta(minutes=61), timedelta(hours=13), timedelta(0)])
CHATS = st.lists(st.tuples(ROLES, TEXTS, STEPS), max_size=40)
LIMITS = st.builds(
    Limits,
    gap=st.just(Limits().gap),
    messages=st.integers(1, 12),
    tokens=st.integers(5, 80),
    window=st.integers(1, 4),
    reach=st.integers(0, 3),
    shift=st.sampled_from([0.05, 0.2, 0.5]),
)


def overlap(before: Sequence[str], after: Sequence[str]) -> float:
    one, other = ({word for text in window for word in text.split()} for window in (before, after))
    return len(one & other) / max(len(one | other), 1)


SIMILARITIES = st.sampled_from([overlap, None])


def messages_of(turns: list[tuple[str, str, timedelta]]) -> list[BoundaryInput]:
    now, messages = START, []
    for at, (role, text, step) in enumerate(turns):
        now += step
        messages.append(BoundaryInput(10 + 3 * at, role, now, text))
    return messages


@given(CHATS, LIMITS, SIMILARITIES, st.sampled_from([timedelta(0), timedelta(hours=2), LATER]))
def test_runs_are_in_order_and_hold_each_message_once(turns, limits, similarity, wait):
    messages = messages_of(turns)
    now = messages[-1].time + wait if messages else START
    seqs = [message.seq for message in messages]
    for flush in (False, True):
        held = [
            seq
            for run in segments(messages, now=now, similarity=similarity, limits=limits, flush=flush)
            for seq in seqs
            if run.first <= seq <= run.last
        ]
        assert held == seqs[: len(held)]
    assert held == seqs
    if wait == LATER:
        assert all(
            run.reason != "flush"
            for run in segments(messages, now=now, similarity=similarity, limits=limits, flush=True)
        )


@given(CHATS, LIMITS, SIMILARITIES, st.data())
@settings(max_examples=300)
def test_it_does_not_matter_in_how_many_steps_a_session_is_settled(turns, limits, similarity, data):
    messages = messages_of(turns)
    end = messages[-1].time if messages else START
    once = segments(messages, now=end + LATER, similarity=similarity, limits=limits)
    settled: list[Segment] = []
    for there in sorted(data.draw(st.lists(st.integers(1, max(len(messages), 1)), max_size=6))):
        known = messages[:there]
        # Any moment before the next message comes.
        now = messages[there].time if there < len(messages) else end
        decided = segments(known, now=now, similarity=similarity, limits=limits)
        assert decided == once[: len(decided)]
        unsettled = [message for message in known if not settled or message.seq > settled[-1].last]
        settled += segments(unsettled, now=now, similarity=similarity, limits=limits)
    unsettled = [message for message in messages if not settled or message.seq > settled[-1].last]
    assert settled + segments(unsettled, now=end + LATER, similarity=similarity, limits=limits) == once


@given(CHATS, LIMITS, SIMILARITIES)
@settings(max_examples=300)
def test_no_run_is_too_large_and_none_parts_what_belongs_together(turns, limits, similarity):
    messages = messages_of(turns)
    place = {message.seq: at for at, message in enumerate(messages)}
    for run in segments(messages, now=START, similarity=similarity, limits=limits, flush=True):
        first, after = place[run.first], place[run.last] + 1
        sizes = [estimate_tokens(message.text) for message in messages[first:after]]
        assert len(sizes) == 1 or (len(sizes) <= limits.messages and sum(sizes) <= limits.tokens)
        if run.reason == "topic":
            assert cohesion(*messages[after - 1 : after + 1]) == 0
        elif run.reason == "gap":
            assert messages[after].time - messages[after - 1].time >= limits.gap
        elif run.reason == "size" and after < len(messages):
            alone = max(sizes[-1], estimate_tokens(messages[after].text)) > limits.tokens
            parted = [cohesion(*messages[at - 1 : at + 1]) for at in range(first + 1, after + 1)]
            assert alone or parted[-1] == min(parted)

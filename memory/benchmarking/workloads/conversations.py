"""Synthetic conversations with questions whose answers are known by construction.

Over several months two people talk about facts (their own and their friends'), changes of these facts, what
they did, and small talk. Questions ask

- for a fact, with words other than in the turn ("fact"), or for its newest value after a change ("update"),
- what happened in a month, which only the timestamps show ("time"),
- for a combination of two facts ("hops"),
- for facts that no turn mentions ("no_answer").

The seed determines all conversations.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from memory.benchmarking.workloads.collections import Collection, Passage, Question

_NAMES = (
    "Ann", "Boris", "Chloe", "David", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Kira", "Liam",
    "Mona", "Nils", "Olga", "Pavel", "Rosa", "Samir", "Tilda", "Viktor",
)  # fmt: skip
_TURNS_PER_SESSION = 14
_RELATIONS = ("sister", "brother", "neighbour", "cousin", "boss", "flatmate", "uncle", "teacher")


@dataclass(frozen=True)
class _FactKind:
    """One kind of fact, with sentence patterns: `{who}` is the person, `{value}` the fact."""

    name: str
    values: tuple[str, ...]
    about_others: tuple[str, ...]
    about_self: tuple[str, ...]
    questions: tuple[str, ...]
    changes: tuple[str, ...] = ()
    """Sentences that report a new value; empty if this kind of fact never changes."""


_FACT_KINDS = (
    _FactKind(
        "pet",
        ("a parrot", "two cats", "an old greyhound", "a tortoise", "a rabbit", "a hedgehog", "a pony"),
        ("{who} keeps {value} at home.", "You should see {who} with {value}!"),
        ("We have {value} at home, did I tell you?", "I came home early because of {value}."),
        ("What animal does {who} have?", "Which pet lives with {who}?"),
    ),
    _FactKind(
        "city",
        ("Lisbon", "Tallinn", "Krakow", "Leeds", "Ghent", "Turin", "Malmö", "Split", "Basel", "Porto"),
        ("{who} lives in {value}, quite near the station.", "{who} has a flat in {value}."),
        ("I live in {value}, quite near the station.", "My flat in {value} is small but bright."),
        ("Where is {who}'s home?", "In which city does {who} live now?"),
        ("{who} has moved to {value}.", "{who} packed up everything and is in {value} now."),
    ),
    _FactKind(
        "job",
        ("a nurse", "a baker", "a tram driver", "a piano tuner", "a lawyer", "a gardener", "a welder"),
        ("{who} works as {value}.", "{who} is {value}, and likes it."),
        ("I work as {value}.", "Being {value} suits me."),
        ("What does {who} do for a living?", "What is {who}'s profession?"),
        ("{who} quit and is {value} these days.", "{who} started over as {value}."),
    ),
    _FactKind(
        "food",
        ("mango curry", "rye bread", "onion soup", "dumplings", "grilled sardines", "pea stew"),
        ("{who} could eat {value} every day.", "Nothing beats {value}, {who} says."),
        ("I could eat {value} every day.", "I cooked {value} again, my favourite."),
        ("What is {who}'s favourite dish?", "Which meal does {who} like best?"),
    ),
    _FactKind(
        "allergy",
        ("peanuts", "cats", "penicillin", "pollen", "shellfish", "latex"),
        ("{who} is allergic to {value}.", "{who} must keep away from {value}, the doctor said."),
        ("I am allergic to {value}.", "The doctor says that I must keep away from {value}."),
        ("What can't {who} tolerate?", "Which allergy does {who} have?"),
    ),
    _FactKind(
        "instrument",
        ("the cello", "the trumpet", "the accordion", "the drums", "the harp", "the oboe"),
        ("{who} practises {value} every evening.", "{who} plays {value} in a small band."),
        ("I practise {value} every evening.", "I play {value} in a small band."),
        ("Which musical instrument does {who} play?", "What does {who} make music with?"),
        ("{who} sold the old instrument and plays {value} now.", "{who} has switched to {value}."),
    ),
    _FactKind(
        "car",
        ("an old Volvo", "a red van", "a cargo bike", "a tiny electric car", "a motorbike", "a tandem"),
        ("{who} gets around with {value}.", "{who} repaired {value} last weekend."),
        ("I get around with {value}.", "I spent the weekend repairing {value}."),
        ("What vehicle does {who} use?", "How does {who} travel to work?"),
        ("{who} gave it away and drives {value} now.", "{who} has {value} instead these days."),
    ),
    _FactKind(
        "language",
        ("Turkish", "Finnish", "Greek", "Welsh", "Arabic", "Portuguese"),
        ("{who} is learning {value}.", "{who} takes lessons in {value} on Mondays."),
        ("I am learning {value}.", "On Mondays I take lessons in {value}."),
        ("Which language is {who} studying?", "What does {who} want to speak?"),
        ("{who} gave that up and is learning {value}.", "{who} takes {value} lessons instead."),
    ),
)
_EVENTS = (
    ("ran a half marathon", "took part in a race"),
    ("broke an arm on the ice", "had an accident"),
    ("painted the kitchen yellow", "renovated a room"),
    ("won a chess tournament", "won a competition"),
    ("planted thirty tulips", "worked in the garden"),
    ("lost a wallet on the ferry", "lost something"),
    ("sang at a wedding", "sang in public"),
    ("finished the pottery course", "completed a class"),
)
_SMALL_TALK = (
    "How have you been?", "It has been raining for days.", "Did you sleep well?", "That sounds great!",
    "I should call my mother more often.", "The bus was late again.", "What a week it was.",
    "Let's have coffee soon.", "I can't believe how expensive everything is.", "You are right about that.",
    "My phone battery is nearly empty.", "The neighbours are loud tonight.", "I saw a film about whales.",
    "We should go hiking when it gets warmer.", "Thanks for listening.", "I keep forgetting my umbrella.",
    "The new bakery on the corner is good.", "I read half a book on the train.",
)  # fmt: skip


def synthetic_collections(conversations: int = 4, sessions: int = 10, seed: int = 0) -> list[Collection]:
    """Generate conversations of several sessions, with about three questions a session."""
    return [
        _Conversation(number, sessions, random.Random(f"conversation {seed} {number}")).collection()
        for number in range(conversations)
    ]


class _Conversation:
    """Generates one conversation."""

    def __init__(self, number: int, sessions: int, rng: random.Random) -> None:
        self._id = f"conversation-{number}"
        self._rng = rng
        people = rng.sample(_NAMES, 8)
        self._speakers, self._friends = people[:2], people[2:]
        self._turns: list[list[tuple[str, str]]] = [[] for _ in range(sessions)]
        """The turns of every session. A turn is its key, and a text that begins with the speaker's name."""
        self._questions: list[tuple[str, str, tuple[str, ...]]] = []
        """Text, category, and keys of the relevant turns of each question."""
        self._start = datetime(2024, 1, 8, 18, tzinfo=UTC) + timedelta(days=rng.randrange(28))
        self._gap = 30 if sessions <= 12 else 360 // sessions
        self._add_facts()
        self._add_relations()
        self._add_events()
        self._add_questions_without_answer()
        self._add_small_talk()

    def _add_turn(self, session: int, speaker: str, text: str) -> str:
        """Add a turn to a session; return its key."""
        key = f"{session}:{len(self._turns[session])}:{text}"
        self._turns[session].append((key, f"{speaker}: {text}"))
        return key

    def _add_facts(self) -> None:
        rng, sessions = self._rng, len(self._turns)
        self._unused: list[tuple[str, _FactKind]] = []
        for who in (*self._speakers, *self._friends):
            kinds = rng.sample(_FACT_KINDS, len(_FACT_KINDS))
            mentioned = kinds[: 5 if who in self._speakers else 3]
            self._unused += [(who, kind) for kind in kinds[len(mentioned) :]]
            for kind in mentioned:
                first, second = rng.sample(kind.values, 2)
                session = rng.randrange(sessions)
                speaker = who if who in self._speakers else rng.choice(self._speakers)
                patterns = kind.about_self if speaker == who else kind.about_others
                turn = self._add_turn(session, speaker, rng.choice(patterns).format(who=who, value=first))
                question = rng.choice(kind.questions).format(who=who)
                if kind.changes and session + 1 < sessions and rng.random() < 0.5:
                    later = rng.randrange(session + 1, sessions)
                    other = next(name for name in self._speakers if name != who)
                    text = rng.choice(kind.changes).format(who=who, value=second)
                    turn = self._add_turn(later, other, text)
                    self._questions.append((question, "update", (turn,)))
                else:
                    self._questions.append((question, "fact", (turn,)))

    def _add_relations(self) -> None:
        """Add pairs of facts that a question combines: who somebody's sister is, and what she collects."""
        rng = self._rng
        things = rng.sample(("stamps", "sea glass", "old maps", "buttons", "postcards", "clocks"), 2)
        for speaker, friend, thing in zip(self._speakers, self._friends, things, strict=False):
            relation = rng.choice(_RELATIONS)
            one = self._add_turn(rng.randrange(len(self._turns)), speaker, f"{friend} is my {relation}.")
            two = self._add_turn(
                rng.randrange(len(self._turns)), rng.choice(self._speakers), f"{friend} collects {thing}."
            )
            self._questions.append((f"What does {speaker}'s {relation} collect?", "hops", (one, two)))

    def _add_events(self) -> None:
        """Add events. Only the turn's timestamp shows the month of an event."""
        rng = self._rng
        sessions = rng.sample(range(len(self._turns)), min(len(_EVENTS), len(self._turns)))
        for session, (event, gist) in zip(sessions, rng.sample(_EVENTS, len(sessions)), strict=True):
            speaker = rng.choice(self._speakers)
            turn = self._add_turn(session, speaker, f"Guess what, I {event} yesterday.")
            month = self._time(session, 0).strftime("%B %Y")
            question = rng.choice((f"What did {speaker} do in {month}?", f"Who {gist} in {month}?"))
            self._questions.append((question, "time", (turn,)))

    def _add_questions_without_answer(self) -> None:
        for who, kind in self._rng.sample(self._unused, min(4, len(self._unused))):
            self._questions.append((self._rng.choice(kind.questions).format(who=who), "no_answer", ()))

    def _add_small_talk(self) -> None:
        """Add small talk to each session up to `_TURNS_PER_SESSION` turns, and shuffle its turns."""
        for number, session in enumerate(self._turns):
            while len(session) < _TURNS_PER_SESSION:
                self._add_turn(number, self._rng.choice(self._speakers), self._rng.choice(_SMALL_TALK))
            self._rng.shuffle(session)

    def _time(self, session: int, turn: int) -> datetime:
        return self._start + timedelta(days=session * self._gap, minutes=turn)

    def collection(self) -> Collection:
        ids: dict[str, str] = {}
        passages = []
        for session, turns in enumerate(self._turns):
            for number, (key, line) in enumerate(turns):
                speaker, _, text = line.partition(": ")
                ids[key] = f"S{session + 1}:{number + 1}"
                passages.append(
                    Passage(
                        ids[key],
                        text,
                        self._time(session, number).timestamp(),
                        {"speaker": speaker, "session": session + 1},
                    )
                )
        questions = tuple(
            Question(text, category, {ids[key]: 1 for key in keys})
            for text, category, keys in self._questions
        )
        return Collection(self._id, tuple(passages), questions)

"""A LangGraph graph whose user states facts and asks for them later, without and with a memory.

    START ─▶ recall ─▶ model ─▶ remember ─▶ END

Without a memory, the two nodes around the model do nothing. So the difference is the time of the memory,
not that of two more nodes. The model is scripted: it answers with the line of its prompt that contains the
answer, or that it does not know.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypedDict

from langchain_core.language_models.chat_models import SimpleChatModel
from langchain_core.messages import BaseMessage, HumanMessage, SystemMessage
from langgraph.graph import END, START, StateGraph
from langgraph.store.base import BaseStore

from memory.benchmarking.targets.base import Item, Target

AGENT = "graph"
RECALLED = 3
_FACTS = 5
"""Facts stated, and questions asked, in one conversation."""
_PEOPLE = ("sister", "brother", "boss", "cousin", "neighbour", "uncle", "teacher", "flatmate", "dentist")
_THINGS = ("colour", "dish", "city", "instrument", "flower", "sport", "drink", "season", "animal")
_VALUES = {
    "colour": ("blue", "yellow", "purple", "orange"),
    "dish": ("onion soup", "mango curry", "pea stew", "dumplings"),
    "city": ("Lisbon", "Ghent", "Turin", "Leeds"),
    "instrument": ("cello", "trumpet", "harp", "oboe"),
    "flower": ("tulip", "peony", "iris", "dahlia"),
    "sport": ("tennis", "rowing", "judo", "fencing"),
    "drink": ("cider", "mint tea", "cocoa", "lemonade"),
    "season": ("spring", "autumn", "winter", "summer"),
    "animal": ("otter", "hedgehog", "heron", "badger"),
}


class State(TypedDict, total=False):
    said: str
    known: list[str]
    reply: str


Node = Callable[..., State]


def _nothing(state: State) -> State:
    return {}


class FactModel(SimpleChatModel):
    """Answers a question with the line of its prompt that has the same person and thing."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _call(self, messages: list[BaseMessage], *_: Any, **__: Any) -> str:
        *known, said = (str(message.content) for message in messages)
        if not said.endswith("?"):
            return "I see."
        asked = [word for word in (*_PEOPLE, *_THINGS) if word in said]
        lines = (line for part in known for line in part.splitlines())
        return next((line for line in lines if all(word in line for word in asked)), "I don't know.")


def conversation(number: int, seed: int) -> list[tuple[str, str | None]]:
    """Return what the user says, and the answer where it is a question about an earlier fact."""

    def fact(of: int, index: int) -> tuple[str, str, str]:
        order = [(person, thing) for person in _PEOPLE for thing in _THINGS]
        random.Random(f"facts {seed}").shuffle(order)
        person, thing = order[(of * _FACTS + index) % len(order)]
        return person, thing, random.Random(f"value {seed} {person} {thing}").choice(_VALUES[thing])

    rng = random.Random(f"conversation {seed} {number}")
    facts = [fact(number, index) for index in range(_FACTS)]
    asked = [fact(rng.randrange(max(0, number - 10), number + 1), index) for index in range(_FACTS)]
    return [
        *((f"My {person}'s favourite {thing} is {value}.", None) for person, thing, value in facts),
        *((f"What is my {person}'s favourite {thing}?", value) for person, thing, value in asked),
    ]


class Talk:
    """Holds conversations with one graph, and counts questions and correct answers."""

    def __init__(
        self, seed: int, recall: Node = _nothing, remember: Node = _nothing, store: BaseStore | None = None
    ) -> None:
        self._seed = seed
        self.asked = self.answered = 0
        model = FactModel()

        def answer(state: State) -> State:
            known = "\n".join(state.get("known", ()))
            prompt = [SystemMessage(known), HumanMessage(state["said"])]
            return {"reply": str(model.invoke(prompt).content)}

        builder = StateGraph(State)
        nodes = {"recall": recall, "model": answer, "remember": remember}
        for name, node in nodes.items():
            builder.add_node(name, node)
        for start, end in zip((START, *nodes), (*nodes, END), strict=True):
            builder.add_edge(start, end)
        self._graph = builder.compile(store=store)

    def iterate(self, number: int) -> None:
        for said, value in conversation(number, self._seed):
            reply = self._graph.invoke({"said": said})["reply"]
            if value is not None:
                self.asked += 1
                self.answered += value in reply


class TargetNodes:
    """The two nodes around the model, with a target as memory."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.reads = self.writes = 0
        self.ids: list[str] = []
        self.items: list[Item] = []

    def recall(self, state: State) -> State:
        found = self._target.search(AGENT, state["said"], RECALLED)
        self.reads += len(found)
        return {"known": [str(each.content) for each in found]}

    def remember(self, state: State) -> State:
        if not state["said"].endswith("?"):
            self.items.append(Item(AGENT, state["said"], kind="message"))
            self.ids.append(self._target.add_one(self.items[-1]))
            self.writes += 1
        return {}


def store_nodes() -> tuple[Node, Node]:
    """Return the same two nodes with LangGraph's own interface for stores."""
    place = ("users", "ann")

    def recall(state: State, *, store: BaseStore) -> State:
        found = store.search(place, query=state["said"], limit=RECALLED)
        return {"known": [each.value["text"] for each in found]}

    def remember(state: State, *, store: BaseStore) -> State:
        if not state["said"].endswith("?"):
            store.put(place, state["said"], {"text": state["said"]})
        return {}

    return recall, remember

"""A chat on the command line that remembers what you said, even after a restart.

    python examples/chat_agent.py                                   # offline: no key, no network
    python examples/chat_agent.py --base-url http://localhost:11434/v1 --model llama3.2
    OPENAI_API_KEY=… python examples/chat_agent.py --base-url https://api.openai.com/v1 --model gpt-4o-mini
    python examples/chat_agent.py --say "Where is my umbrella?"     # one message only

Offline, a scripted model answers by three rules. After "remember" it stores a note. To "time" it answers
with the time. To anything else it answers with what you said before that shares the most words with the
question, in this conversation or in its memories. Sessions and memories are files in --data.
"""

from __future__ import annotations

import argparse
import re
import sys
from datetime import datetime
from pathlib import Path

from memory import AgentMemorySystem, MemoryConfig
from memory.agents import (
    AgentRuntime,
    Context,
    ContextBuilder,
    Model,
    OpenAICompatibleModel,
    Reply,
    ScriptedModel,
    SessionStore,
    ToolCall,
    ToolRegistry,
)
from memory.entry import MemoryEntry
from memory.errors import AgentMemoryError

AGENT = "chat"
FUNCTION_WORDS = frozenset({
    "a", "an", "and", "are", "at", "do", "does", "for", "from", "have", "how", "i", "in", "is", "it", "me",
    "my", "of", "on", "that", "the", "to", "was", "what", "when", "where", "which", "who", "why", "you",
    "your",
})  # fmt: skip
"""Words that most questions share with most statements."""
PROMPT = (
    "You are a friendly assistant with a memory. You get notes of previous conversations. "
    "Use the tools when they help. Be brief."
)


def main() -> int:
    options = parse()
    data = Path(options.data)
    config = MemoryConfig()
    config.ltm_config.db_path = str(data / "memory.db")
    try:
        with (
            AgentMemorySystem(config) as memory,
            SessionStore(data / "sessions.db") as sessions,
            model_for(options) as model,
        ):
            builder = ContextBuilder(
                sessions, memory, tools_for(memory), system_prompt=PROMPT, memories=10, recent_sessions=2
            )
            runtime = AgentRuntime(AGENT, model, builder=builder)
            if options.say is not None:
                return say(runtime, options.say, None)[0]
            return chat(runtime)
    except AgentMemoryError as problem:
        print(f"chat_agent: {problem}", file=sys.stderr)
        return 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--data", default="chat-data", help="the folder of the two files (default: %(default)s)"
    )
    parser.add_argument("--base-url", help="an OpenAI-compatible endpoint (default: a model offline)")
    parser.add_argument("--model", help="the name of the endpoint's model; OPENAI_API_KEY holds the key")
    parser.add_argument("--say", metavar="TEXT", help="send this message, print the answer and exit")
    options = parser.parse_args()
    if bool(options.base_url) != bool(options.model):
        parser.error("--base-url needs --model, and --model needs --base-url")
    return options


def chat(runtime: AgentRuntime) -> int:
    print("Say something; an empty line or Ctrl-D ends the chat.")
    # Otherwise a line that can't be decoded would also lose the lines read together with it.
    sys.stdin.reconfigure(errors="surrogateescape")
    session_id = None
    while True:
        try:
            text = input("you> ")
        except (EOFError, KeyboardInterrupt):
            print()
            return 0
        if not text.strip():
            return 0
        if not is_readable(text):
            print(f"chat_agent: that line is not {sys.stdin.encoding}: type it again", file=sys.stderr)
            continue
        _, session_id = say(runtime, text, session_id)


def is_readable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def say(runtime: AgentRuntime, text: str, session_id: str | None) -> tuple[int, str]:
    """Send one message and print the answer. Return the exit code and the session's id."""
    result = runtime.invoke(text, session_id)
    if result.answer:
        print(result.answer)
    if result.error:
        print(f"chat_agent: {result.error}", file=sys.stderr)
    return (0 if result.stopped_by == "answer" else 1), result.session_id


def tools_for(memory: AgentMemorySystem) -> ToolRegistry:
    registry = ToolRegistry(timeout_seconds=30)

    @registry.tool
    def remember(fact: str) -> str:
        """Store a fact for later conversations.

        Args:
            fact: the fact, as one sentence
        """
        memory.add(AGENT, fact, kind="note", importance=3.0)
        return f"noted: {fact}"

    @registry.tool
    def time_now() -> str:
        """Return the date and the time of day."""
        return datetime.now().astimezone().strftime("%A, %d %B %Y, %H:%M %Z")

    return registry


def model_for(options: argparse.Namespace) -> Model:
    if options.base_url:
        return OpenAICompatibleModel(options.base_url, options.model)
    return ScriptedModel([three_rules], repeat=True)


def three_rules(context: Context) -> Reply | str:
    """Reply like a model that follows the three rules above."""
    newest = context.messages[-1]
    if newest.role == "tool":
        return newest.content
    text = newest.content.strip()
    if text.lower().startswith("remember "):
        return Reply("", (ToolCall(name="remember", arguments={"fact": text[len("remember ") :]}),))
    if "time" in text.lower().split() or "time?" in text.lower().split():
        return Reply("", (ToolCall(name="time_now"),))
    said = [message.content for message in context.messages[:-1] if message.role == "user"]
    # What the conversation shows is not among the memories. The newest comes first, the best memory next.
    remembered = [str(hit.entry.content) for hit in context.memories if is_from_user(hit.entry)]
    statements = [statement for statement in [*reversed(said), *remembered] if is_statement(statement)]
    wanted = words_of(text)
    best = max(statements, key=lambda statement: len(wanted & words_of(statement)), default=None)
    if best is not None and not wanted & words_of(best):
        best = next(filter(is_statement, remembered), None)  # no word in common: nearest in meaning
    return f"I remember: {best}" if best else "I remember nothing about that."


def words_of(text: str) -> set[str]:
    """Return the words of a text that say what it is about."""
    return set(re.findall(r"\w+", text.lower())) - FUNCTION_WORDS


def is_from_user(entry: MemoryEntry) -> bool:
    return entry.metadata.get("speaker", "user") == "user"


def is_statement(text: str) -> bool:
    """Return False for previous questions and requests to remember: they state nothing new."""
    text = text.strip()
    return not text.endswith("?") and not text.lower().startswith("remember ")


if __name__ == "__main__":
    sys.exit(main())

"""The example chat, run as a process and started again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from chat_server import answers, completion, serving
from subprocesses import PATIENCE

EXAMPLE = Path(__file__).parents[2] / "examples" / "chat_agent.py"


def chat(*arguments: object, lines: str | bytes = "", code: int = 0) -> tuple[str, str]:
    process = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), *map(str, arguments)],
        input=lines.encode() if isinstance(lines, str) else lines,
        capture_output=True,
        timeout=PATIENCE,
        env=os.environ | {"OPENAI_API_KEY": "a key"},
        check=False,
    )
    assert process.returncode == code, process.stderr
    return process.stdout.decode(), process.stderr.decode()


def test_the_chat_remembers_across_restarts(tmp_path: Path) -> None:
    data = ("--data", tmp_path / "chat")
    assert chat(*data, "--say", "remember My umbrella is in the cellar.") == (
        "noted: My umbrella is in the cellar.\n",
        "",
    )
    assert chat(*data, "--say", "Where is my umbrella?") == (
        "I remember: My umbrella is in the cellar.\n",
        "",
    )
    printed, errors = chat(
        *data, lines="The cat is called Mia.\nWhat is the time?\nWhere is my umbrella?\n"
    )
    assert errors == ""
    assert printed.endswith("you> I remember: My umbrella is in the cellar.\nyou> \n")


def test_the_chat_answers_from_what_was_said_in_the_same_session(tmp_path: Path) -> None:
    lines = "My dog is called Rex.\nMy cat is called Tom.\nI like jazz.\nWhat is my dog called?\n"
    printed, errors = chat("--data", tmp_path, lines=lines)
    assert errors == ""
    assert printed.endswith("you> I remember: My dog is called Rex.\nyou> \n")
    printed, errors = chat("--data", tmp_path, lines="Nothing new today.\nWhat is my dog called?\n")
    assert printed.endswith("you> I remember: My dog is called Rex.\nyou> \n"), "an earlier session"


def test_a_line_that_is_not_text_is_reported_and_the_chat_goes_on(tmp_path: Path) -> None:
    lines = b"remember The cat is called Mia.\nbroken \xff line\nWhat is the cat called?\n"
    printed, errors = chat("--data", tmp_path, lines=lines)
    assert errors == "chat_agent: that line is not utf-8: type it again\n"
    assert printed.endswith("you> you> I remember: The cat is called Mia.\nyou> \n")


def test_the_chat_uses_an_endpoint(tmp_path: Path) -> None:
    script = [
        answers(completion(None, ("remember", '{"fact": "Ann likes tea."}'))),
        answers(completion("I will keep that in mind.")),
        answers(completion("Tea, of course.")),
        answers({"error": {"message": "no such model"}}, 404),
    ]
    with serving(*script) as server:
        model = ("--data", tmp_path, "--base-url", server.url, "--model", "m")
        assert chat(*model, "--say", "I like tea. Ann")[0] == "I will keep that in mind.\n"
        assert chat(*model, "--say", "What does Ann like?")[0] == "Tea, of course.\n"
        assert "Ann likes tea." in server.requests[-1]["messages"][1]["content"]
        assert server.keys[-1] == "Bearer a key"
        printed, errors = chat(*model, "--say", "Hello?", code=1)
        assert (printed, errors) == (
            "",
            "chat_agent: the model's endpoint answered 404: 'no such model'\n",
        )


def test_errors_are_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "sessions.db").write_text("not a database " * 100)
    printed, errors = chat("--data", tmp_path, "--say", "hello", code=1)
    assert printed == ""
    assert errors.startswith("chat_agent: ")
    assert errors.count("\n") == 1
    assert "--model needs --base-url" in chat("--model", "m", code=2)[1]

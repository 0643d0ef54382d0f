"""A small memory as an MCP server over stdio: JSON lines in a file, search by shared words.

    python small_mcp_server.py FILE

It answers with plain text content, as many servers do, and sends a notification before every answer.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

FILE = Path(sys.argv[1])
memories: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}


def tool(name: str, given: dict[str, Any]) -> Any:
    if name == "remember":
        number = memories.get("next", 1)
        memories["next"] = number + 1
        memories[str(number)] = {"user": given["user"], "text": given["text"]}
    elif name == "forget":
        del memories[str(given["number"])]
    elif name == "recall":
        return {"memory": memories[str(given["number"])]}
    elif name == "find":
        words = set(given["words"].split())
        hits = [
            {
                "number": int(number),
                "text": memory["text"],
                "shared": len(words & set(memory["text"].split())),
            }
            for number, memory in memories.items()
            if number != "next" and memory["user"] == given["user"]
        ]
        return {"found": sorted(hits, key=lambda hit: -hit["shared"])[: given["most"]]}
    else:
        raise KeyError(f"no tool {name}")
    FILE.write_text(json.dumps(memories))
    return {"number": number} if name == "remember" else {}


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    result: dict[str, Any] = {}
    if message["method"] == "initialize":
        result = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "small"},
        }
    elif message["method"] == "tools/call":
        send(method="notifications/message", params={"level": "info", "data": "working"})
        try:
            answer = json.dumps(tool(message["params"]["name"], message["params"]["arguments"]))
        except (KeyError, TypeError) as problem:
            answer, result = f"{type(problem).__name__}: {problem}", {"isError": True}
        result["content"] = [{"type": "text", "text": answer}]
    elif message["method"] != "ping":
        send(id=message["id"], error={"code": -32601, "message": f"no method {message['method']}"})
        continue
    send(id=message["id"], result=result)

"""A scripted language model on loopback, for running real agents in tests without a network or an account.

It speaks the streaming dialects that agents use, with the standard library alone:

    POST /v1/messages                    Anthropic Messages      (Claude Code)
    POST /v1/responses                   OpenAI Responses        (Codex)
    POST /v1/chat/completions            OpenAI Chat Completions (opencode and most others)
    POST …:generateContent, …:streamGenerateContent   Gemini     (Gemini CLI)

The script is a JSON list. Each request that offers tools takes the next step; requests without tools (titles,
summaries, warm-ups) get `side`, a text, a step or a function of the request, and take none. A step is one of

    {"text": "the answer"}                                 with "finish": "length" if it is cut off there
    {"call": "recall", "arguments": {"query": "tea"}}      the offered tool called so, or `…__recall`, or `…_recall`;
                                                           with "text" also words, in Chat Completions
    {"status": 529, "text": "why"}                         an error answer
    {"hang": true}                                         no answer: the agent waits until it is killed
    … "prompt_tokens": 90000                               how long the prompt is said to be, in Chat Completions

After the last step the model says "(script over)". Every request is appended to the record, one JSON line each,
without the values of credentials.

`serve` runs it in a thread of a test.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Json = dict[str, Any]
SECRET = {"authorization", "x-api-key", "x-goog-api-key", "cookie"}


class Script:
    """The steps still to be spoken, and the record of what was asked."""

    def __init__(self, steps: list[Json], record: Path | None, side: str = "ok") -> None:
        """Take the steps, where to record, and what to say to a request without tools."""
        self._steps = list(steps)
        self._record = record
        self.side: str | Json | Callable[[Json], str] = side
        self._asked = 0
        self._lock = threading.Lock()
        self.hanging, self.released = threading.Event(), threading.Event()

    def add(self, *steps: Json) -> None:
        """Add steps behind those that are left."""
        with self._lock:
            self._steps += steps

    def answer(self, path: str, headers: dict[str, str], body: Json) -> Json:
        """Return the step for one request, with the offered tool's full name, and record both."""
        tools = offered(body)
        with self._lock:
            self._asked += 1
            if not tools:
                side = self.side(body) if callable(self.side) else self.side
                step: Json = dict(side) if isinstance(side, dict) else {"text": side}
            elif self._steps:
                step = dict(self._steps.pop(0))
            else:
                step = {"text": "(script over)"}
            if "call" in step:
                step["tool"] = full_name(step["call"], tools)
            step["n"] = self._asked
            if self._record:
                shown = {k: "…" if k.lower() in SECRET else v for k, v in headers.items()}
                line = {"n": self._asked, "path": path, "headers": shown, "body": body, "answer": step}
                with self._record.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(line, ensure_ascii=False) + "\n")
        return step


def offered(body: Json) -> list[Json]:
    """Return the tools that a request offers, each as {"name", "namespace"}, whatever the dialect."""
    found: list[Json] = []
    for tool in body.get("tools") or []:
        if tool.get("type") == "namespace":
            found += [{"name": one["name"], "namespace": tool["name"]} for one in tool.get("tools", [])]
        elif "functionDeclarations" in tool:
            found += [{"name": one["name"], "namespace": None} for one in tool["functionDeclarations"]]
        else:
            name = (tool.get("function") or tool).get("name")
            found += [{"name": name, "namespace": None}] if name else []
    return found


def full_name(short: str, tools: list[Json]) -> Json:
    """Return the offered tool that is called this, or ends in it; the short name itself when there is none."""
    for tool in tools:
        if tool["name"] == short or tool["name"].endswith(("__" + short, "_" + short)):
            return tool
    return {"name": short, "namespace": None}


def messages(step: Json, model: str) -> Iterator[Json]:
    """Say a step in the Anthropic Messages dialect."""
    n = step["n"]
    start = {"id": f"msg_{n}", "type": "message", "role": "assistant", "model": model, "content": []}
    usage = {"input_tokens": 10, "output_tokens": 1}
    yield {"type": "message_start", "message": start | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
    if "tool" in step:
        block = {"type": "tool_use", "id": f"toolu_{n}", "name": step["tool"]["name"], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(step.get("arguments", {}))}
    else:
        block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": step["text"]}
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    yield {"type": "content_block_delta", "index": 0, "delta": delta}
    yield {"type": "content_block_stop", "index": 0}
    reason = "tool_use" if "tool" in step else "end_turn"
    ended = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 5}}
    yield {"type": "message_stop"}


def message(step: Json, model: str) -> Json:
    """Say a step as one Anthropic message."""
    block: Json = {"type": "text", "text": step.get("text", "")}
    if "tool" in step:
        block = {"type": "tool_use", "id": f"toolu_{step['n']}", "name": step["tool"]["name"]}
        block["input"] = step.get("arguments", {})
    reason = "tool_use" if "tool" in step else "end_turn"
    spoken = {"id": f"msg_{step['n']}", "type": "message", "role": "assistant", "model": model, "content": [block]}
    return spoken | {"stop_reason": reason, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5}}


def responses(step: Json, model: str) -> Iterator[Json]:
    """Say a step in the OpenAI Responses dialect."""
    n = step["n"]
    begun = {"id": f"resp_{n}", "object": "response", "model": model, "status": "in_progress", "output": []}
    yield {"type": "response.created", "response": begun}
    if "tool" in step:
        item = {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": step["tool"]["name"]}
        item["arguments"] = json.dumps(step.get("arguments", {}))
        if step["tool"]["namespace"]:
            item["namespace"] = step["tool"]["namespace"]
    else:
        text = {"type": "output_text", "text": step["text"], "annotations": []}
        item = {"type": "message", "id": f"item_{n}", "role": "assistant", "status": "completed", "content": [text]}
        yield {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}}
        where = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        yield {"type": "response.output_text.delta", **where, "delta": step["text"]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage: Json = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    yield {"type": "response.completed", "response": begun | {"status": "completed", "output": [item], "usage": usage}}


def completion(step: Json, model: str, key: str) -> Json:
    """Say a step as one Chat Completions object; `key` is "message", or "delta" for a chunk of a stream."""
    spoken: Json = {"role": "assistant", "content": step.get("text")}
    if "tool" in step:
        call = {"name": step["tool"]["name"], "arguments": json.dumps(step.get("arguments", {}))}
        spoken["tool_calls"] = [{"index": 0, "id": f"call_{step['n']}", "type": "function", "function": call}]
    reason = "tool_calls" if "tool" in step else step.get("finish", "stop")
    choice = {"index": 0, key: spoken, "finish_reason": None if key == "delta" else reason}
    kind = "chat.completion.chunk" if key == "delta" else "chat.completion"
    usage = _usage(step)
    whole = {"id": f"chat_{step['n']}", "object": kind, "created": 0, "model": model, "choices": [choice]}
    return whole if key == "delta" else whole | {"usage": usage}


def _usage(step: Json) -> Json:
    prompt = int(step.get("prompt_tokens", 10))
    return {"prompt_tokens": prompt, "completion_tokens": 5, "total_tokens": prompt + 5}


def chunks(step: Json, model: str) -> Iterator[Json]:
    """Say a step in the streaming Chat Completions dialect."""
    first = completion(step, model, "delta")
    yield first
    reason = "tool_calls" if "tool" in step else step.get("finish", "stop")
    usage = _usage(step)
    yield first | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}


def gemini(step: Json, model: str) -> Json:
    """Say a step in the Gemini dialect."""
    part: Json = {"text": step.get("text", "")}
    if "tool" in step:
        part = {"functionCall": {"name": step["tool"]["name"], "args": step.get("arguments", {})}}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": model}


class Model(BaseHTTPRequestHandler):
    """Answers one request of an agent."""

    protocol_version = "HTTP/1.1"
    script: Script

    def do_GET(self) -> None:
        """List one model, for every request."""
        self._json(200, {"object": "list", "data": [{"id": "stub", "object": "model", "type": "model"}], "models": []})

    def do_HEAD(self) -> None:
        """Say that the server is there."""
        self._json(200, {})

    def do_POST(self) -> None:
        """Answer with the next step, in the dialect of the path."""
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith(("/count_tokens", ":countTokens")):
            self._json(200, {"input_tokens": 10, "totalTokens": 10})
            return
        step = self.script.answer(path, dict(self.headers.items()), body)
        model = body.get("model", "stub")
        if step.get("hang"):
            self.script.hanging.set()
            self.script.released.wait(60)
            return
        if "status" in step:
            error = {"type": "api_error", "message": step.get("text", "")}
            self._json(step["status"], {"type": "error", "error": error})
        elif path.endswith("/messages"):
            self._said(body.get("stream"), messages(step, model), message(step, model), named=True)
        elif path.endswith("/responses"):
            whole = list(responses(step, model))
            self._said(body.get("stream", True), iter(whole), whole[-1]["response"], named=True)
        elif path.endswith("/chat/completions"):
            self._said(body.get("stream"), chunks(step, model), completion(step, model, "message"), end="[DONE]")
        elif "enerateContent" in path:
            self._said("stream" in path, iter([gemini(step, model)]), gemini(step, model))
        else:
            self._json(404, {"error": {"type": "not_found_error", "message": path}})

    def _said(self, stream: object, events: Iterator[Json], whole: Json, *, named: bool = False, end: str = "") -> None:
        if not stream:
            self._json(200, whole)
            return
        frames = [(f"event: {one['type']}\n" if named else "") + f"data: {json.dumps(one)}\n\n" for one in events]
        frames += [f"data: {end}\n\n"] if end else []
        self._send(200, "text/event-stream", "".join(frames).encode())

    def _json(self, status: int, body: Json) -> None:
        self._send(status, "application/json", json.dumps(body).encode())

    def _send(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Stay quiet: the record says it all."""


def serve(script: Script) -> ThreadingHTTPServer:
    """Return a server on a free port of loopback, which is running."""
    handler = type("ScriptedModel", (Model,), {"script": script})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server

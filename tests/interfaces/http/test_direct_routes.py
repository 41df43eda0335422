"""The table of direct routes: requests get the same answers as from the app, without passing through it."""

from __future__ import annotations

from starlette.testclient import TestClient

from commonbook.interfaces.http.direct_routes import DirectRoutes
from commonbook.wire.verbs import BATCH_PATH, VERBS

FIXED = sorted({verb.path for verb in VERBS.values() if verb.method == "POST" and not verb.path_arguments})


async def unreachable(scope, receive, send):
    raise AssertionError(f"{scope['method']} {scope['path']} went to the app")


def test_every_fixed_path_gets_the_same_answers_by_the_table(app, book):
    key = {"Authorization": f"Bearer {book.create_key('user:local').secret}"}
    direct = TestClient(DirectRoutes(unreachable, app.router.routes))
    for path in (*FIXED, BATCH_PATH):
        for headers in ({}, key):
            answers = [one.post(path, json={"nonsense": 1}, headers=headers) for one in (TestClient(app), direct)]
            first, second = ({**answer.json(), "instance": None, "problem": None} for answer in answers)
            assert first == second, path
            assert answers[0].status_code == answers[1].status_code
    found = direct.post("/v1/memories", json={"text": "Alice owns billing"}, headers=key)
    assert (found.status_code, found.json()["new"], found.headers["etag"]) == (200, True, '"1"')


def test_other_methods_and_paths_go_to_the_app(app, book):
    direct = TestClient(DirectRoutes(app, app.router.routes))
    assert direct.get("/v1/recall").status_code == 405
    assert direct.post("/v1/nothing").status_code == 404
    assert direct.post("/v1/memories/x/move", json={}).status_code in {401, 404}
    assert direct.get("/openapi.json").status_code == 200

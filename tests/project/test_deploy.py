"""The files in `deploy/` are checked as far as that goes without a container engine: their steps are run here."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import venv
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from commonbook.interfaces.cli.commands import make_parser
from tests.support.servers import Server, serving

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
BIN = Path(sys.executable).parent
VARIABLES = {"POSTGRES_PASSWORD": "secret", "COMMONBOOK_HOST": "localhost"}


def compose() -> dict[str, Any]:
    """The compose file, with the values of its variables."""
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(re.sub(r"\$\{(\w+)[^}]*\}", lambda found: VARIABLES[found[1]], text)))


def require_valid_options(command: list[str]) -> None:
    args = make_parser(command).parse_args(command)
    assert args.command == command[0]


def test_the_unit_of_systemd_is_valid(tmp_path):
    text = (DEPLOY / "commonbook.service").read_text(encoding="utf-8")
    (command,) = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    program, *options = shlex.split(command)
    assert program == "/opt/commonbook/bin/commonbook"
    require_valid_options(options)
    unit = tmp_path / "commonbook.service"
    unit.write_text(text.replace(program, str(BIN / "commonbook")), encoding="utf-8")
    if shutil.which("systemd-analyze"):
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_the_compose_file_fits_its_schema():
    done = subprocess.run(
        [BIN / "check-jsonschema", "--builtin-schema", "vendor.compose-spec", DEPLOY / "compose.yaml"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


def test_the_compose_file_has_a_database_two_servers_a_worker_and_commands_that_exist():
    services = compose()["services"]
    assert services.keys() == {"database", "server-1", "server-2", "worker", "proxy", "setup"}
    for name in ("server-1", "server-2", "worker"):
        require_valid_options(services[name]["command"])
    subnet = compose()["networks"]["inside"]["ipam"]["config"][0]["subnet"]
    assert f"--behind-proxy={subnet}" in services["server-1"]["command"]


@pytest.mark.slow
def test_the_services_of_the_compose_file_work_together(postgres_database, tmp_path):
    services = compose()["services"]
    keys = tmp_path / "keys" / "book"
    keys.parent.mkdir()
    environ = {
        "COMMONBOOK_DATABASE": postgres_database,
        "COMMONBOOK_KEYS": str(keys),
        "COMMONBOOK_HOME": str(tmp_path / "data"),
        "PATH": f"{BIN}:{os.environ['PATH']}",
    }
    (script,) = services["setup"]["command"]
    script = script.replace("/keys", str(keys.parent)).replace("chown -R 10001:10001", "test -d").replace("$$", "$")
    for _ in range(2):
        done = subprocess.run(
            [*services["setup"]["entrypoint"], script],
            env={**os.environ, **environ}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    (secret,) = set(re.findall(r"cbk_[\w-]+", done.stdout))
    options = [option for option in services["server-1"]["command"][1:] if not option.startswith("--metrics-port")]
    worker = subprocess.Popen(
        [sys.executable, "-m", "commonbook", *services["worker"]["command"]], env={**os.environ, **environ}
    )
    try:
        with (
            serving(None, *options, environ=environ) as first,
            serving(None, *options, environ=environ) as second,
            first.client(secret) as one,
            second.client(secret) as two,
        ):
            receipt = one.post("/v1/memories", json={"text": "Alice owns billing"}).json()
            assert receipt["space"] == "team"
            assert two.get(f"/v1/memories/{receipt['id']}").json()["text"] == "Alice owns billing"
    finally:
        worker.terminate()
        assert worker.wait(60) == 0


@pytest.mark.promise("servers.end")
@pytest.mark.slow
def test_servers_that_are_restarted_one_by_one_answer_all_the_time_and_lose_nothing(
    postgres_book, monkeypatch, tmp_path
):
    address, keys = postgres_book
    environ = {"COMMONBOOK_DATABASE": address, "COMMONBOOK_KEYS": keys, "COMMONBOOK_HOME": str(tmp_path / "home")}
    servers: list[Server] = []
    answered: list[str] = []
    failures: list[str] = []
    stop = threading.Event()

    def remember_on() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            for server in [*servers]:
                try:
                    with server.client() as client:
                        answer = client.post("/v1/memories", json={"text": f"memory {number}", "key": str(number)})
                except httpx2.TransportError:
                    continue
                if answer.status_code == 200:
                    answered.append(answer.json()["id"])
                    break
            else:
                failures.append(str(number))

    from contextlib import ExitStack

    with ExitStack() as stack:
        for _ in range(3):
            servers.append(stack.enter_context(serving(None, environ=environ)))
        writer = threading.Thread(target=remember_on)
        writer.start()
        for at in range(3):
            before = len(answered)
            assert servers[at].end() == 0
            servers[at] = stack.enter_context(serving(None, environ=environ))
            while len(answered) < before + 3:
                assert writer.is_alive()
        stop.set()
        writer.join()
        assert failures == []
        with servers[0].client() as client:
            stored = client.get("/v1/memories", params={"limit": 1000, "space": "personal"}).json()["items"]
    assert {memory["id"] for memory in stored} == set(answered)
    assert len(answered) == len(set(answered))


# --- the container file


def instructions() -> list[tuple[str, str]]:
    """The instructions of the container file, each with its arguments on one line."""
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in lines]


@pytest.mark.slow
def test_the_steps_of_the_container_file_make_a_server_that_is_healthy(tmp_path):
    root = tmp_path / "root"
    environment = tmp_path / "python"
    venv.create(environment, with_pip=True)
    give_packages(environment, [Requirement("commonbook[server,postgres]"), Requirement("hatchling")])
    environ = {**os.environ, "PATH": f"{environment / 'bin'}:{os.environ['PATH']}"}
    steps = dict.fromkeys(name for name, _ in instructions())
    assert {"FROM", "WORKDIR", "COPY", "RUN", "USER", "HEALTHCHECK", "ENTRYPOINT", "CMD"} <= steps.keys()
    folder, commands = root, {}
    for name, arguments in instructions():
        if name == "WORKDIR":
            folder = root / arguments.lstrip("/")
            folder.mkdir(parents=True)
        elif name == "COPY":
            *sources, target = arguments.split()
            copy(sources, root / target.lstrip("/"))
        elif name == "RUN":
            command = arguments.replace("/data", f"{root}/data").replace("chown 10001:10001", "test -d")
            # Nothing is downloaded: the packages that the program needs are there already, and no others.
            command = command.replace("pip install", "pip install --no-index --no-build-isolation")
            subprocess.run(["sh", "-euc", command], cwd=folder, env=environ, check=True, capture_output=True)
        elif name == "ENV":
            variable, _, value = arguments.partition("=")
            environ[variable] = f"{root}{value}"
        elif name in {"ENTRYPOINT", "CMD", "HEALTHCHECK"}:
            commands[name] = json.loads(arguments.partition("[")[1] + arguments.partition("[")[2])
    program = environment / "bin" / commands["ENTRYPOINT"][0]
    process = subprocess.Popen(
        [program, *commands["CMD"], "--port", "0", "--json"],
        cwd=tmp_path, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline() or "null")["url"]
        check = [part.replace("http://127.0.0.1:7373", url) for part in commands["HEALTHCHECK"]]
        assert check != commands["HEALTHCHECK"]
        subprocess.run(check, env=environ, check=True, capture_output=True)
        process.terminate()
        assert process.wait(60) == 0
        assert subprocess.run(check, env=environ, capture_output=True, check=False).returncode != 0
    finally:
        process.kill()
        process.communicate()


def give_packages(environment: Path, wanted: list[Requirement]) -> None:
    """Link the installed packages that these need into another environment, but not the program itself."""
    (site,) = environment.glob("lib/python*/site-packages")
    seen: set[tuple[str, str]] = set()
    while wanted:
        requirement = wanted.pop()
        for extra in ("", *requirement.extras):
            if (key := (canonicalize_name(requirement.name), extra)) in seen:
                continue
            seen.add(key)
            distribution = metadata.distribution(requirement.name)
            found = map(Requirement, distribution.requires or ())
            wanted += [needed for needed in found if not needed.marker or needed.marker.evaluate({"extra": extra})]
            if requirement.name != "commonbook":
                link_files(distribution, site)


def link_files(distribution: metadata.Distribution, site: Path) -> None:
    for top in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
        if not (site / top).exists():
            (site / top).symlink_to(Path(str(distribution.locate_file(top))))


def copy(sources: list[str], target: Path) -> None:
    for source in sources:
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / source, target)

"""Import and export as zip archives: `POST /v1/import` takes one as its body, `GET /v1/export` answers with one.

An archive passes through a folder of the server's own, which nobody else can read, and is removed afterwards. That of
an export has no name any more when it is sent: however the answer ends, nothing of the book stays behind.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from commonbook.errors import CommonbookError, HomeError, TooLarge
from commonbook.interfaces.http.error_answers import BadShape
from commonbook.interfaces.http.routes import (
    Credentials,
    credentials_of,
    idempotency_key,
    json_answer,
    keyed_answer,
    view_of,
)
from commonbook.interfaces.http.verb_calls import Call
from commonbook.service.serving import require_importer
from commonbook.values.encoding import dumps
from commonbook.verbs.requests import REPORT_MEMBER

if TYPE_CHECKING:
    from commonbook.interfaces.http.threads import ServerConfig, Threads
    from commonbook.service.book import Book

ZIP: Final = "application/zip"
_DEFAULT_SOURCE: Final = "archive"
_PART_BYTES: Final = 1 << 18


class ImportHandler:
    """Answers the requests of `/v1/import`."""

    def __init__(self, book: Book, call: Call, threads: Threads, config: ServerConfig) -> None:
        """Answer from this book, in these threads."""
        self._book, self._call, self._threads = book, call, threads
        self._max_bytes = config.max_archive_bytes

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        given = credentials_of(request)
        # A key that may not import fills no disk.
        view = await self._threads.run(partial(self._importer, request, given))
        media_type = request.headers.get("content-type", ZIP).partition(";")[0].strip().lower()
        if media_type != ZIP:
            raise BadShape(f"the body is not {ZIP}", fix=f"send the header `Content-Type: {ZIP}`", status=415)
        arguments = self._call.parse_query(request.query_params.multi_items())
        upload = os.path.join(_spool_folder(), f"{secrets.token_hex(16)}.part")
        try:
            digest = await self._receive(request, upload)
            work = partial(self._import, request, view, arguments, upload, digest)
            return await self._threads.run(work)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(upload)

    def _importer(self, request: Request, given: Credentials) -> Book:
        view = view_of(self._book, request, given)
        require_importer(view)
        return view

    async def _receive(self, request: Request, upload: str) -> str:
        """Write the body to a file, and return its hash."""
        digest, size = sha256(), 0
        with open(upload, "xb", opener=partial(os.open, mode=0o600)) as file:
            async for chunk in request.stream():
                size += len(chunk)
                if size > self._max_bytes:
                    raise TooLarge(
                        f"an archive has at most {self._max_bytes:,} bytes", fix="import it in parts, or on the server"
                    )
                digest.update(chunk)
                file.write(chunk)
        return digest.hexdigest()

    def _import(self, request: Request, view: Book, arguments: dict[str, Any], upload: str, digest: str) -> Response:
        # A source that comes again under its name updates what it has imported before: the book knows it by its path.
        source = f"{view.actor}\n{arguments.pop('folder', _DEFAULT_SOURCE)}"
        with _source_folder(sha256(source.encode()).hexdigest()[:32]) as folder:
            path = os.path.join(folder, "import.zip")
            os.replace(upload, path)
            try:
                key = idempotency_key(request)
                if key is not None:
                    requested = {**arguments, "folder": f"{source}\n{digest}"}
                    return keyed_answer(self._call, view, {**arguments, "folder": path}, key, requested=requested)
                return json_answer(self._call.invoke(view, {**arguments, "folder": path}))
            except CommonbookError as error:
                # The path is of the server, and says nothing to the caller.
                error.message = error.message.replace(path, "the archive")
                raise
            finally:
                os.unlink(path)


class ExportHandler:
    """Answers the requests of `/v1/export`."""

    def __init__(self, book: Book, call: Call, threads: Threads) -> None:
        """Answer from this book, in these threads."""
        self._book, self._call, self._threads = book, call, threads

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        return await self._threads.run(partial(self._export, request, credentials_of(request)))

    def _export(self, request: Request, given: Credentials) -> Response:
        view = view_of(self._book, request, given)
        arguments = self._call.parse_query(request.query_params.multi_items())
        target = os.path.join(_spool_folder(), f"{secrets.token_hex(16)}.zip")
        try:
            report = self._call.invoke(view, {**arguments, "target": target})
            with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as archive:
                # The time of all reports is one, so that equal states of a book give equal archives.
                archive.writestr(zipfile.ZipInfo(REPORT_MEMBER), dumps(report), zipfile.ZIP_DEFLATED)
            file = open(target, "rb")  # noqa: SIM115 - the answer closes it
        finally:
            with suppress(FileNotFoundError):
                os.unlink(target)
        headers = {
            "Content-Length": str(os.fstat(file.fileno()).st_size),
            "Content-Disposition": 'attachment; filename="commonbook-export.zip"',
        }
        # Parts of it (the header Range) are not served: each request would make another archive.
        return StreamingResponse(_parts(file), media_type=ZIP, headers=headers)


def _parts(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while part := file.read(_PART_BYTES):
            yield part


def _spool_folder() -> str:
    """Return the folder of archives that come and go; HomeError if another user has made it."""
    folder = os.path.join(gettempdir(), f"commonbook-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(folder, 0o700)
    state = os.lstat(folder)
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid() or state.st_mode & 0o077:
        raise HomeError(
            "the folder for archives on the server is not its own", fix=f"remove {folder} on the server, or set TMPDIR"
        )
    return folder


@contextmanager
def _source_folder(name: str) -> Iterator[str]:
    """Lock the folder of one source: two imports of it run one after the other."""
    folder = os.path.join(_spool_folder(), name)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with open(os.path.join(folder, "lock"), "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder

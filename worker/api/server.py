"""Serves the operations by HTTP, with an OpenAPI description."""

import contextlib
import inspect
import ipaddress
import re
from collections.abc import AsyncIterator, Callable
from http import HTTPStatus
from typing import Annotated, Any

import anyio.to_thread
import structlog
from fastapi import Body, FastAPI, Request, Response, Security
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tilewatch import find_release
from tilewatch.db import session as database
from tilewatch.db.lifecycle.tokens import BudgetSpent, TokenInUse
from tilewatch.db.page_reads.series import UnknownName
from tilewatch.db.session import DatabaseUnreachable
from tilewatch.errors import ExpectedError
from tilewatch.worker.api import refusals, webhooks
from tilewatch.worker.api.callers import Credentials
from tilewatch.worker.api.deliveries import Unsigned
from tilewatch.worker.api.operations import OPERATIONS, VERSION, Operation, call
from tilewatch.worker.api.refusals import NobodyKnown, NotAllowed, NotThere, UnknownArgument, describe_mistakes
from tilewatch.worker.settings import Settings
from tilewatch.worker.submitting.submit_requests import AWAY

log = structlog.get_logger()

AT_ONCE = 8
"""The most calls that are answered at the same time. Each uses one of the few connections of the embedded Postgres."""

LARGEST_BODY_BYTES = 25 * 2**20
"""The largest request body that is read, in bytes. GitHub's webhooks send no larger ones."""

ABOUT = """Read what Tilewatch measured and judged. Where a call is refused, `detail` is one sentence that says why.

A call from another machine needs a token: `Authorization: Bearer TOKEN`."""

FORWARDED = ("forwarded", "x-forwarded-", "x-real-ip", "x-client-ip", "true-client-ip", "via")
"""Prefixes of the headers that a proxy adds when it forwards another client's call."""

HOST = re.compile(r"\[([0-9a-f:.]+)\](?::\d+)?|([^:\[\]]+)(?::\d+)?", re.IGNORECASE)
"""A pattern of valid Host headers. Starlette would replace an invalid one by the address of this machine."""

STATUS: dict[type, HTTPStatus] = {
    NobodyKnown: HTTPStatus.UNAUTHORIZED,
    Unsigned: HTTPStatus.UNAUTHORIZED,
    NotAllowed: HTTPStatus.FORBIDDEN,
    NotThere: HTTPStatus.NOT_FOUND,
    UnknownName: HTTPStatus.NOT_FOUND,
    BudgetSpent: HTTPStatus.TOO_MANY_REQUESTS,
    TokenInUse: HTTPStatus.TOO_MANY_REQUESTS,
    ExpectedError: HTTPStatus.UNPROCESSABLE_ENTITY,
    **dict.fromkeys(AWAY, HTTPStatus.SERVICE_UNAVAILABLE),
}
"""Maps classes of errors to the HTTP statuses of their answers. The most specific class of an error counts."""

REFUSAL = {"type": "object", "properties": {"detail": {"type": "string"}}, "required": ["detail"]}
TOKEN = HTTPBearer(scheme_name="token", description="A token of `tilewatch token add`.", auto_error=False)
"""Describes the token's header in OpenAPI. It refuses no caller, because callers.py decides that."""


def make_app(settings: Settings) -> FastAPI:
    database_url = settings.connection().database_url
    app = FastAPI(
        title="Tilewatch",
        version=find_release(),
        description=ABOUT,
        lifespan=_limit_threads,
        docs_url=None,  # both pages load their scripts from outside
        redoc_url=None,
    )
    app.add_middleware(_BodyLimit)
    for operation in OPERATIONS:
        app.add_api_route(
            VERSION + operation.path,
            _endpoint(operation, settings),
            methods=[operation.method],
            status_code=operation.status,
            name=operation.name,
            operation_id=operation.name,
            summary=operation.name.replace("_", " ").capitalize(),
            description=operation.description,
            response_model=operation.signature.return_annotation,
            responses={
                "4XX": _described("The call is refused."),
                "503": _described("A server that this needs does not answer."),
            },
            dependencies=[Security(TOKEN)],
            openapi_extra={"security": [{}]} if operation.right == "read" else None,
        )
    for forge in webhooks.FORGES:
        take_delivery = webhooks.take_delivery_of(forge, settings)
        app.add_api_route(f"{VERSION}/hooks/{forge}", take_delivery, methods=["POST"], include_in_schema=False)
    app.add_api_route("/healthz", _health(database_url), include_in_schema=False)
    for refusal in STATUS:
        app.add_exception_handler(refusal, _answer_refusal)
    app.add_exception_handler(RequestValidationError, _answer_bad_arguments)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(ClientDisconnect, lambda *_: Response(status_code=HTTPStatus.BAD_REQUEST))
    return app


class _BodyLimit:
    """Refuses a request whose body is larger than LARGEST_BODY_BYTES, and reads no more than that."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        size_bytes = 0
        # A proxy may believe the other length, and take the rest of the body for another caller's request.
        if {name for name, _ in scope.get("headers", ())} >= {b"content-length", b"transfer-encoding"}:
            refusal = _refuse(HTTPStatus.BAD_REQUEST, "a body has one length", {"Connection": "close"})
            await refusal(scope, receive, send)
            return

        async def receive_part() -> Message:
            nonlocal size_bytes
            message = await receive()
            size_bytes += len(message.get("body", b""))
            if size_bytes > LARGEST_BODY_BYTES:
                raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {LARGEST_BODY_BYTES:,} bytes")
            return message

        await self._app(scope, receive_part, send)


def read_credentials(request: Request) -> Credentials:
    """Returns the token of a call, and whether the call is from this machine."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    direct = not any(name.startswith(FORWARDED) for name in request.headers)
    here = request.client is not None and _is_loopback(request.client.host)
    # A foreign web page may have a host name that points to this machine.
    found = HOST.fullmatch(request.headers.get("host", ""))
    host = "" if found is None else (found[1] or found[2]).lower()
    named = host == "localhost" or _is_loopback(host)
    return Credentials(token.strip() if scheme.lower() == "bearer" else None, direct and here and named)


def _endpoint(operation: Operation, settings: Settings) -> Callable[..., Response]:
    known = [name for name in operation.signature.parameters if f"{{{name}}}" not in operation.path]

    def answer(request: Request, **arguments: Any) -> Response:
        for name in request.query_params:
            if operation.method == "POST" or name not in known:
                raise UnknownArgument(name, () if operation.method == "POST" else known)
        found = call(operation, settings, read_credentials(request), arguments)
        # Not written by FastAPI, which would first copy each of thousands of rows.
        return Response(operation.answer.dump_json(found), operation.status, media_type="application/json")

    asked = inspect.Parameter("request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    parameters = [
        each.replace(
            kind=inspect.Parameter.KEYWORD_ONLY,
            annotation=Annotated[each.annotation, Body()] if operation.method == "POST" else each.annotation,
        )
        for each in operation.signature.parameters.values()
    ]
    vars(answer)["__signature__"] = inspect.Signature([asked, *parameters])
    return answer


def _health(database_url: str) -> Callable[[], Response]:
    def healthz() -> Response:
        if (trouble := database.find_trouble(database_url)) is not None:
            raise DatabaseUnreachable(trouble)
        return Response("ok\n", media_type="text/plain")

    return healthz


@contextlib.asynccontextmanager
async def _limit_threads(_: FastAPI) -> AsyncIterator[None]:
    anyio.to_thread.current_default_thread_limiter().total_tokens = AT_ONCE
    yield


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _answer_refusal(_: Request, error: Exception) -> Response:
    status = next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        log.warning("no answer", reason=str(error).splitlines()[0])
        return _refuse(status, refusals.NO_ANSWER)
    return _refuse(status, str(error))


def _answer_bad_arguments(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    mistakes = [{**each, "loc": each["loc"][1:] or ("the body",)} for each in error.errors()]
    return _refuse(HTTPStatus.UNPROCESSABLE_ENTITY, describe_mistakes(mistakes))


def _answer_http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refuse(HTTPStatus(error.status_code), f"{error.detail}: /openapi.json says what there is", error.headers)


def _refuse(status: HTTPStatus, sentence: str, headers: Any = None) -> Response:
    wanted = {"WWW-Authenticate": "Bearer"} if status == HTTPStatus.UNAUTHORIZED else {}
    return JSONResponse({"detail": sentence}, status, {**wanted, **(headers or {})})


def _described(description: str) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": REFUSAL}}}

"""Receives the webhooks of forges by HTTP, and stores the checks that they ask for."""

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from tilewatch.db.lifecycle import actions, tokens
from tilewatch.db.session import session
from tilewatch.worker.api import deliveries
from tilewatch.worker.api.deliveries import Delivery, Nothing
from tilewatch.worker.api.refusals import NotAllowed
from tilewatch.worker.git import watched
from tilewatch.worker.settings import Settings

TOKEN = "webhook"  # noqa: S105 - a name
"""The name of the token to which forges' checks are charged. Its budget limits them, and revoking it stops them."""

Read = Callable[[str, Mapping[str, str], bytes], Delivery]
FORGES: dict[str, Read] = {"github": deliveries.read_github, "gitlab": deliveries.read_gitlab}


def take_delivery_of(forge: str, settings: Settings) -> Callable[[Request], Awaitable[Response]]:
    """Returns the HTTP endpoint that receives the deliveries of one kind of forge."""
    read = FORGES[forge]

    async def take_delivery(request: Request) -> Response:
        secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret else ""
        if not secret:
            raise NotAllowed("no forge is expected here: TILEWATCH_WEBHOOK_SECRET is not set")
        delivery = read(secret, request.headers, await request.body())
        if isinstance(delivery.asks, Nothing):
            return JSONResponse({"detail": f"nothing to do: {delivery.asks.reason}"})
        return await run_in_threadpool(_ask, settings, delivery)

    return take_delivery


def _ask(settings: Settings, delivery: Delivery) -> Response:
    asks = delivery.asks
    assert not isinstance(asks, Nothing)
    with session(settings.connection().database_url) as opened:
        holder = tokens.find_holder(opened, name=TOKEN)
        if holder is None or "check" not in holder.rights:
            raise NotAllowed(
                f"forges act with the token {TOKEN}, which is not there: "
                f"`tilewatch token add {TOKEN} --may check --gpu-seconds 36000` makes it"
            )
        repository = watched.choose_by_address(opened, settings, asks.addresses).name
        wanted = {"repository": repository, "base": asks.base, "head": asks.head, "of": asks.of, "token": TOKEN}
        # Submitted within a minute: the clone may not have the commit yet, and a forge does not wait for an answer.
        action_id = actions.ask(opened, holder.who, "check", wanted, delivery.key)
    if action_id is None:
        return JSONResponse({"detail": "this delivery was taken before"})
    return JSONResponse({"detail": f"a check is submitted within a minute: {asks.of}"}, HTTPStatus.ACCEPTED)

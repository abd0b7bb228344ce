"""An order service that publishes each change; it serves no streams itself.

uvicorn --app-dir examples/fastapi-publisher app:app --port 8001
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Literal

from fastapi import Depends, FastAPI, Request
from pydantic import BaseModel

from tidegate import AsyncGateway, AsyncPublisher

TOPIC = {"key": ["/id"], "description": "Orders, the newest state of each", "expiration": "1d"}


class Order(BaseModel):
    symbol: str
    quantity: int
    state: Literal["open", "filled", "canceled"] = "open"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    address = os.environ.get("TIDEGATE_GATEWAY", "http://127.0.0.1:8080")
    async with AsyncGateway(address) as gateway:
        await gateway.put_topic("orders", TOPIC)
        async with gateway.publisher("orders") as publisher:
            app.state.publisher = publisher
            yield


def orders(request: Request) -> AsyncPublisher:
    publisher: AsyncPublisher = request.app.state.publisher
    return publisher


app = FastAPI(lifespan=lifespan)


@app.put("/orders/{order_id}", status_code=202)
async def put_order(
    order_id: int, order: Order, publisher: Annotated[AsyncPublisher, Depends(orders)]
) -> None:
    await publisher.publish({"id": order_id, **order.model_dump()})

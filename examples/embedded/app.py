"""A service whose own streams are conflated; no gateway runs.

uvicorn --app-dir examples/embedded app:app --port 8001
"""

from fastapi import FastAPI, Request, Response
from pydantic import BaseModel

from tidegate.embed import ConflatedTopic

app = FastAPI()
prices = ConflatedTopic(key=["/symbol"], name="prices", options="conflation=1s,oof")


class Price(BaseModel):
    price: float


@app.put("/prices/{symbol}", status_code=204)
async def put_price(symbol: str, price: Price) -> None:
    await prices.publish({"symbol": symbol, "price": price.price})


@app.delete("/prices/{symbol}", status_code=204)
async def delete_price(symbol: str) -> None:
    await prices.remove(symbol)


@app.get("/prices")
async def stream(request: Request, options: str = "", command: str | None = None) -> Response:
    return prices.response(request, options, command=command)

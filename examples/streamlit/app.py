"""A live table and chart of prices, for any number of viewers.

streamlit run examples/streamlit/app.py
"""

import os

import streamlit as st

from tidegate import Gateway, Live


@st.cache_resource
def subscribe() -> Live:
    """Return one live dict for all viewers: the script runs again for each of them."""
    gateway = Gateway(os.environ.get("TIDEGATE_GATEWAY", "http://127.0.0.1:8080"))
    prices = gateway.live("prices", options="conflation=500ms", order_by="/price DESC")
    prices.ready()
    return prices


@st.fragment(run_every=0.5)
def show() -> None:
    """Draw the newest values; Streamlit runs this part again at its own interval."""
    prices = subscribe()
    if prices.outage:
        st.warning(f"Not live: {prices.outage}")
    frame = prices.to_pandas()[["symbol", "price", "size"]]
    st.dataframe(frame, hide_index=True)
    st.bar_chart(frame, x="symbol", y="price")


st.title("Prices")
show()

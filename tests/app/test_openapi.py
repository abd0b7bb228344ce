"""OpenAPI names the parameters of routes that read their requests themselves."""

from app.main import create_app
from app.openapi import described
from app.settings import Settings


def test_parameters_keep_their_places() -> None:
    extra = described(query={"limit": "At most"}, header={"If-Match": "The tag"})
    places = {(p["name"], p["in"], p["required"]) for p in extra["parameters"]}
    assert places == {
        ("topic", "path", True), ("limit", "query", False), ("If-Match", "header", False)
    }  # fmt: skip


def test_a_body_is_named_by_its_media_types() -> None:
    assert list(described(body=["text/x"])["requestBody"]["content"]) == ["text/x"]


def test_every_operation_says_what_it_is() -> None:
    document = create_app(Settings()).openapi()
    operations = [
        (path, method, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    assert len(operations) >= 12
    for path, method, operation in operations:
        named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
        wanted = {part[1:-1].split(":")[0] for part in path.split("/") if part.startswith("{")}
        assert operation["summary"], (path, method)
        assert named == wanted, (path, method)

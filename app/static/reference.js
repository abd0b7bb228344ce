// The HTTP API in Swagger UI, which the package fastapi-offline brings: nothing is loaded from elsewhere.

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "list",
  syntaxHighlight: false, // of a stream that does not end it would never be done
  validatorUrl: null, // theirs is another host's
});

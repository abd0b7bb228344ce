// The HTTP API in Swagger UI, which the package fastapi-offline brings: nothing is loaded from elsewhere.

// Swagger UI has both themes, and leaves the choice to a class.
const dark = matchMedia("(prefers-color-scheme: dark)");
const applyTheme = () => {
  const chosen = localStorage.getItem("tidegate.theme"); // in the console
  document.documentElement.classList.toggle("dark-mode", chosen ? chosen === "dark" : dark.matches);
};
dark.addEventListener("change", applyTheme);
applyTheme();

SwaggerUIBundle({
  url: "/openapi.json",
  dom_id: "#reference",
  deepLinking: true,
  docExpansion: "list",
  syntaxHighlight: false, // of a stream that does not end it would never be done
  validatorUrl: null, // theirs is another host's
});

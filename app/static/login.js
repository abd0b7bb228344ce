// The login at the identity provider: a link to it, or a button out of it.

const ASKED = "tidegate.login"; // this gateway has asked for a login: others would answer 404

// Show the way to a login: to the provider, which leads back to this very page, or to the console, which takes a token.
export function offerLogin(place, way) {
  sessionStorage.setItem(ASKED, "1");
  const link = document.createElement("a");
  const here = location.pathname + location.search + location.hash;
  link.href = way === "provider" ? `/v1/login/start?${new URLSearchParams({ return: here })}` : "/console";
  link.textContent = way === "provider" ? "Log in" : "Sign in at the console";
  place.replaceChildren(link);
}

// Show who is logged in, and the way out.
export async function showLogin(place) {
  if (!sessionStorage.getItem(ASKED)) return;
  const answer = await fetch("/v1/login", { cache: "no-store" });
  if (!answer.ok) return;
  const { sub, logout } = await answer.json();
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Log out";
  button.addEventListener("click", async () => {
    const ended = await fetch("/v1/login", { method: "DELETE" });
    // The token still holds, and whoever leaves this browser must know.
    if (!ended.ok) {
      button.textContent = "Log out failed, try again";
      return;
    }
    if (logout) location.assign(logout);
    else location.reload();
  });
  place.replaceChildren(`${sub} `, button);
}

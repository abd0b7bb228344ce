import { defineConfig } from "vite";
import type { ProxyOptions } from "vite";

const gateway: ProxyOptions = {
  target: process.env.TIDEGATE_GATEWAY ?? "http://127.0.0.1:8080",
  // With the browser's own `Host` the page is the gateway's own, and needs no `allowed_origins`.
  changeOrigin: false,
  // Vite would keep the page's stream open when the gateway dies: the page would only notice the silence.
  configure: (proxy) =>
    proxy.on("proxyRes", (answer, _request, toPage) =>
      answer.on("close", () => {
        if (!answer.complete) toPage.destroy();
      }),
    ),
};

export default defineConfig({ server: { proxy: { "/v1": gateway } } });

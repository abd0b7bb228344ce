import { defineConfig } from "vite";

const target = process.env.TIDEGATE_GATEWAY ?? "http://127.0.0.1:8080";

export default defineConfig({
  // With the browser's own `Host` the page is the gateway's own, and needs no `allowed_origins`.
  server: { proxy: { "/v1": { target, changeOrigin: false } } },
});

// The conformance tests of the Durable Streams protocol, unmodified, for vitest.
// $CONFORMANCE_TEST_URL is the address of the server.

import { runConformanceTests } from "@durable-streams/server-conformance-tests";

runConformanceTests({ baseUrl: process.env.CONFORMANCE_TEST_URL });

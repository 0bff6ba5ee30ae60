import { config } from "zod/v4/core";

// The official client's schemas try to compile themselves, which the page's policy forbids and the browser's log would tell.
// To be imported before the client.
config({ jitless: true });

import { CopilotChat, CopilotKitProvider } from "@copilotkit/react-core/v2";
import "@copilotkit/react-core/v2/styles.css";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

// The thread stands in the address, so that a reload is at the same one. Without a threadId CopilotKit begins a new thread.
const address = new URL(location.href);
const threadId = address.searchParams.get("thread") ?? crypto.randomUUID();
address.searchParams.set("thread", threadId);
history.replaceState(null, "", address);

createRoot(document.getElementById("root")).render(
  <StrictMode>
    <CopilotKitProvider runtimeUrl="/api/copilotkit">
      <CopilotChat threadId={threadId} />
    </CopilotKitProvider>
  </StrictMode>,
);

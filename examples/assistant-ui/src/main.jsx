import { HubAgent } from "@aguihub/client";
import { hubHistory } from "@aguihub/client/assistant-ui";
import { AssistantRuntimeProvider, AuiIf, ComposerPrimitive, MessagePrimitive, ThreadPrimitive } from "@assistant-ui/react";
import { useAgUiRuntime } from "@assistant-ui/react-ag-ui";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

// The thread stands in the address, so that a reload is at the same one.
const address = new URL(location.href);
const threadId = address.searchParams.get("thread") ?? crypto.randomUUID();
address.searchParams.set("thread", threadId);
history.replaceState(null, "", address);

const agent = new HubAgent({ url: address.searchParams.get("hub") ?? "http://127.0.0.1:8080", agent: "hello", threadId });
const adapters = { history: hubHistory(agent) }; // the one line

const Message = ({ role }) => (
  <MessagePrimitive.Root className="message" data-role={role}>
    <MessagePrimitive.Parts />
  </MessagePrimitive.Root>
);
const messages = { UserMessage: () => <Message role="user" />, AssistantMessage: () => <Message role="assistant" /> };

function Chat() {
  const runtime = useAgUiRuntime({ agent, adapters });
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <ThreadPrimitive.Root className="thread">
        <ThreadPrimitive.Viewport className="viewport">
          <ThreadPrimitive.Messages components={messages} />
        </ThreadPrimitive.Viewport>
        <ComposerPrimitive.Root className="composer">
          <ComposerPrimitive.Input placeholder="Say something, and reload while it answers" />
          <AuiIf condition={(s) => !s.thread.isRunning}><ComposerPrimitive.Send>Send</ComposerPrimitive.Send></AuiIf>
          <AuiIf condition={(s) => s.thread.isRunning}><ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel></AuiIf>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

createRoot(document.getElementById("root")).render(<StrictMode><Chat /></StrictMode>);

// What is used of packages that the application brings.

declare module "@assistant-ui/react" {
  export const ExportedMessageRepository: {
    // eslint-disable-next-line @typescript-eslint/no-explicit-any -- a ThreadMessage of whichever version
    fromArray(messages: readonly object[]): { messages: { parentId: string | null; message: any }[]; headId?: string | null };
  };
}

declare module "@assistant-ui/react-ag-ui" {
  export function fromAgUiMessages(messages: readonly unknown[], options?: { showThinking?: boolean }): { id?: string; role: string; content: unknown }[];
}

// How a host uses the declarations; this compiles.

import type {
  Candidate,
  ErrorData,
  SessionReferenceMethods,
  SessionReferenceNotifications,
  WireError,
} from "./sessionref";

type Methods = SessionReferenceMethods;
type Notifications = SessionReferenceNotifications;

declare function request<Method extends keyof Methods>(
  method: Method,
  params: Methods[Method]["params"],
): Promise<Methods[Method]["result"]>;
declare function notify<Method extends keyof Notifications>(method: Method, params: Notifications[Method]["params"]): void;

interface OwnBlock {
  type: "image";
  url: string;
}

export async function mention(agentId: string, blocks: OwnBlock[]): Promise<string> {
  const { protocolVersion } = await request("initialize", { clientInfo: { name: "host" } });
  const candidates: Candidate[] = await request("sessionReferenceResolver/candidates", { agentId, limit: 5, cwd: null });
  const first = candidates[0];
  if (first === undefined) {
    return protocolVersion;
  }
  await request("sessionReferenceResolver/prepare", { agentId, content: blocks });
  const prepared = await request("sessionReferenceResolver/prepare", {
    agentId,
    content: `see ${first.mention}`,
    references: [first],
    route: { contextWindow: 200_000 },
  });
  notify("sessionReferenceResolver/assembled", { agentId, provider: "p", model: "m" });
  notify("$/cancelRequest", { id: 0 });
  const ended: null = await request("shutdown", undefined);
  notify("exit", null);
  const shownAs: "recall" | undefined = prepared.additionalContext?.source.form;
  return `${ended} ${shownAs} ${first.cwd?.length ?? 0}`;
}

export function explain(error: WireError): string {
  const data: ErrorData = error.data ?? {};
  switch (data.code) {
    case "SESSION_REFERENCE_READ_FAILED":
      return data.reason === "not-found" ? "gone" : "unreadable";
    case "SESSION_REFERENCE_CANCELLED":
      return error.code === -32802 ? "later" : "cancelled";
    default:
      return error.message;
  }
}

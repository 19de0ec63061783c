// What crosses the wire between a host and sessionref, protocol version 1.
// Generated from the Structs of sessionref.protocol: change those, not this.

/** Every request by its method: what it takes, by name, and what its result is. */
export interface SessionReferenceMethods {
  /** Find sessions that can be mentioned. */
  "sessionReferenceResolver/candidates": { params: CandidatesParams; result: Candidate[] };
  /** Turn one message with mentions into readable content and at most one context. */
  "sessionReferenceResolver/prepare": { params: PrepareParams; result: PrepareResult };
  /** Prepare every message of a user, all or nothing. */
  "sessionReferenceResolver/prepareMessages": { params: PrepareMessagesParams; result: PrepareMessagesResult };
  /** Learn version, capabilities, limits and error codes; optional. */
  "initialize": { params?: AnyParams | null; result: InitializeResult };
  /** Get the OpenRPC document. */
  "rpc.discover": { params?: NoParams | null; result: { [name: string]: unknown } };
  /** Announce the end; `exit` follows. */
  "shutdown": { params?: NoParams | null; result: null };
}

/** Every notification by its method; none is answered. */
export interface SessionReferenceNotifications {
  /** Remember the route of an agent's last assembled prompt. */
  "sessionReferenceResolver/assembled": { params: AssembledParams };
  /** End the process or the connection. */
  "exit": { params?: NoParams | null };
  /** Cancel a request of this connection. */
  "$/cancelRequest": { params: CancelParams };
}

/** The integer of each stable code; a CANCELLED has its second one when the server decided on it. */
export interface ErrorNumbers {
  SESSION_REFERENCE_INVALID_CONFIG: -32011;
  SESSION_REFERENCE_INVALID_REFERENCE: -32012;
  SESSION_REFERENCE_SELF_REFERENCE: -32013;
  SESSION_REFERENCE_TOO_MANY: -32014;
  SESSION_REFERENCE_READ_FAILED: -32015;
  SESSION_REFERENCE_BUDGET_EXCEEDED: -32016;
  SESSION_REFERENCE_CANCELLED: -32800 | -32802;
}

/** The seven stable codes that `data.code` carries. */
export type ErrorCode =
  | "SESSION_REFERENCE_INVALID_CONFIG"
  | "SESSION_REFERENCE_INVALID_REFERENCE"
  | "SESSION_REFERENCE_SELF_REFERENCE"
  | "SESSION_REFERENCE_TOO_MANY"
  | "SESSION_REFERENCE_READ_FAILED"
  | "SESSION_REFERENCE_BUDGET_EXCEEDED"
  | "SESSION_REFERENCE_CANCELLED";

/** Why a source could not be read; a READ_FAILED always carries one. */
export type ReadFailedReason =
  | "not-found"
  | "corrupt"
  | "newer-format"
  | "permission"
  | "duplicate-id"
  | "outside-root"
  | "too-large"
  | "io"
  | "model-lookup";

/** Failures of the protocol itself: the JSON-RPC codes, and one of the server's own. */
export type ProtocolCode =
  | -32700
  | -32600
  | -32601
  | -32602
  | -32603
  | -32000;

/** The `error` member of a JSON-RPC response. */
export interface WireError {
  code: ErrorNumbers[ErrorCode] | ProtocolCode;
  message: string;
  data?: ErrorData;
}

/** The typed facts of an error; absent facts are absent members. */
export interface ErrorData {
  code?: ErrorCode;
  reason?: ReadFailedReason;
  sessionId?: string;
  inputIndex?: number;
  messageIndex?: number;
  limit?: number;
  actual?: number;
  retryable?: boolean;
  id?: string | number;
  incident?: string;
}

/** What `candidates` takes; `limit` is checked by the resolver, whose error it is. */
export interface CandidatesParams {
  /** The id of the target session; it need not exist in any store. */
  agentId: string;
  /** A substring of id, cwd, label or display title. */
  query?: string | null;
  /** The target's working directory. */
  cwd?: string | null;
  /** Rows at most; any other value is INVALID_REFERENCE. */
  limit?: number | null;
  /** List or hide sub-agents' sessions. */
  includeSubagents?: boolean | null;
}

/** What `prepare` takes; elements of `references` are checked by the resolver, whose error they are. */
export interface PrepareParams {
  /** The id of the target session; it need not exist in any store. */
  agentId: string;
  /** Content blocks; the text of those of type `text` is parsed, everything else passes through. */
  content: string | object[];
  /** Known references; further members of an element are ignored. Given, the content is not parsed. */
  references?: { sessionId: string; label?: string }[] | null;
  /** The target's working directory. */
  cwd?: string | null;
  route?: Route | null;
  /** Spill nothing. */
  preview?: boolean | null;
}

/** The model that a prompt goes to, from which its budget follows. */
export interface Route {
  provider?: string | null;
  model?: string | null;
  /** The model's context window in tokens; four bytes each. */
  contextWindow?: number | null;
}

/** What `prepareMessages` takes. */
export interface PrepareMessagesParams {
  /** The id of the target session; it need not exist in any store. */
  agentId: string;
  /** Messages; those whose source.kind is `user` are prepared, the others come back as they came. */
  messages: object[];
  /** The target's working directory. */
  cwd?: string | null;
  route?: Route | null;
}

/** What `assembled` takes: the route of the agent's last assembled prompt. */
export interface AssembledParams {
  /** The id of the target session; it need not exist in any store. */
  agentId: string;
  provider?: string | null;
  model?: string | null;
  /** The model's context window in tokens; four bytes each. */
  contextWindow?: number | null;
}

/** Anything; the peer's own account of itself is not needed. */
export type AnyParams = unknown;

/** No params. */
export type NoParams = { [name: string]: never };

/** What `$/cancelRequest` takes: the id of a request of the same connection. */
export interface CancelParams {
  id: string | number;
}

/** A session that can be mentioned; times in Unix milliseconds, unknown ones absent. */
export interface Candidate {
  sessionId: string;
  label: string;
  displayTitle: string;
  cwd?: string;
  sameWorkspace: boolean;
  createdAt: number;
  updatedAt?: number;
  origin: string;
  mention: string;
  titlePending?: boolean;
}

/** The readable content, in the shape it came, and the context if there was a reference. */
export interface PrepareResult {
  /** In the shape in which it came. */
  content: string | object[];
  additionalContext?: ContextMessage;
  diagnostics?: DiagnosticRecord[];
}

/** The one message that carries all snapshots, to be put right after the user's. */
export interface ContextMessage {
  id: string;
  role: "user";
  content: TextBlock[];
  source: SessionReferenceSource;
}

/** What a reader should know about one source and its record cannot say. */
export interface DiagnosticRecord {
  sessionId: string;
  kind: "torn-tail" | "skipped-lines" | "interrupted-turn" | "unknown-events" | (string & {});
  detail: string;
}

/** A content block of text. */
export interface TextBlock {
  text: string;
  type: "text";
}

/** The source record of a context message: one record a reference. */
export interface SessionReferenceSource {
  kind: "session-reference";
  form: "recall";
  version: 1;
  references: ReferenceRecord[];
}

/**
 * What is durably known of one reference; exactly the keys that DSH accepts in its logs.
 *
 * `capturedFormatVersion` is absent for 0; `omittedBytes` counts UTF-8 text bytes that are not shown.
 */
export interface ReferenceRecord {
  sessionId: string;
  label: string;
  capturedFormatVersion?: number;
  capturedThroughSeq: number | null;
  compacted: boolean;
  originalMessages: number;
  retainedMessages: number;
  omittedMessages: number;
  omittedBytes: number;
  truncated: boolean;
  inputIndex: number;
}

/** All messages, each context right after the message that it belongs to. */
export interface PrepareMessagesResult {
  messages: unknown[];
  diagnostics?: DiagnosticRecord[];
}

/** What a host may want to know before its first call; asking is optional. */
export interface InitializeResult {
  protocolVersion: string;
  serverInfo: ServerInformation;
  capabilities: { [name: string]: unknown };
  limits: { [name: string]: unknown };
  errorCodes: { [name: string]: number };
}

/** Who answers. */
export interface ServerInformation {
  name: string;
  version: string;
}

// Each statement is a mistake that the compiler must find; the comment before it is the error that it must give.

import type { ErrorCode, ErrorData, SessionReferenceMethods, WireError } from "./sessionref";

type Methods = SessionReferenceMethods;
declare const error: WireError;
declare const result: Methods["sessionReferenceResolver/prepare"]["result"];

// TS2741
export const withoutAgent: Methods["sessionReferenceResolver/candidates"]["params"] = {};
// TS2353
export const unknownParam: Methods["sessionReferenceResolver/candidates"]["params"] = { agentId: "a", colour: "red" };
// TS2322
export const textLimit: Methods["sessionReferenceResolver/candidates"]["params"] = { agentId: "a", limit: "5" };
// TS2741
export const namelessReference: Methods["sessionReferenceResolver/prepare"]["params"] = { agentId: "a", content: "", references: [{}] };
// TS2322
export const noSuchCode: ErrorCode = "SESSION_REFERENCE_LOST";
// TS2322
export const noSuchReason: ErrorData = { reason: "lost" };
// TS2322
export const paramsOfShutdown: Methods["shutdown"]["params"] = { now: true };
// TS2339
export type NoSuchMethod = Methods["sessionReferenceResolver/resume"];
// TS2367
export const noSuchNumber = error.code === -32001;
// TS18048
export const unchecked = result.additionalContext.source;

// vscode-jsonrpc, as VS Code extensions use it: over a child's standard streams, and over a pipe, which is a Unix socket.
//
// Settings: `task` ("calls", "cancels", "undefined-params" or "end-of-input"), `command` or `unix`, `slow`.

import { spawn } from "node:child_process";
import { once } from "node:events";
import * as rpc from "vscode-jsonrpc/node";
import {
  AGENT,
  CANDIDATES,
  PREPARE,
  cancelUntilCancelled,
  converse,
  failureOf,
  report,
  settings,
  settled,
  slowRequest,
} from "./conversation.mjs";

const LONE_SURROGATE = "\ud800";

const child = settings.command ? spawn(settings.command[0], settings.command.slice(1), { stdio: ["pipe", "pipe", "inherit"] }) : null;
const [reader, writer] = child
  ? [new rpc.StreamMessageReader(child.stdout), new rpc.StreamMessageWriter(child.stdin)]
  : rpc.createServerPipeTransport(settings.unix);
const wire = tapped(reader, writer);
const connection = rpc.createMessageConnection(reader, writer);
const faults = [];
connection.onError(([error]) => faults.push(String(error)));
const ended = child ? once(child, "exit") : new Promise((resolve) => connection.onClose(resolve));
connection.listen();

const call = (method, ...more) => connection.sendRequest(method, ...more);
const tasks = { calls, cancels, "undefined-params": undefinedParams, "end-of-input": endOfInput };
const seen = await tasks[settings.task]();
const exit = await ended;
connection.dispose();
report({ ...seen, wire, faults, exitCode: child ? exit[0] : null });

async function calls() {
  const conversation = await converse(call);
  const surrogate = {
    candidates: await call(CANDIDATES, { agentId: AGENT, query: LONE_SURROGATE }),
    failure: await failureOf(
      call(PREPARE, { agentId: LONE_SURROGATE, content: "x", references: [{ sessionId: LONE_SURROGATE }] }),
    ),
  };
  // The library sends one scalar as the only positional param, and none as no params at all.
  const positional = await call(CANDIDATES, AGENT);
  const noParams = await failureOf(call(CANDIDATES));
  await goodbye();
  return { ...conversation, surrogate, positional, noParams };
}

async function cancels() {
  const before = new rpc.CancellationTokenSource();
  before.cancel();
  const already = await settled(call(PREPARE, slowRequest(), before.token));
  const during = await cancelUntilCancelled(call, () => {
    const source = new rpc.CancellationTokenSource();
    return { answer: call(PREPARE, slowRequest(), source.token), cancel: () => source.cancel() };
  });
  const late = new rpc.CancellationTokenSource();
  const answered = await call(CANDIDATES, { agentId: AGENT }, late.token);
  late.cancel();
  const after = await call("initialize", {});
  await goodbye();
  return { already, during, answered, after };
}

/** A method by its name with params that are undefined: the library sends `[null]`. */
async function undefinedParams() {
  const shutdown = await settled(call("shutdown", undefined));
  await connection.sendNotification("exit", undefined);
  connection.end();
  return { shutdown };
}

async function endOfInput() {
  const initialize = await call("initialize", {});
  connection.end();
  return { initialize };
}

async function goodbye() {
  await call("shutdown");
  await connection.sendNotification("exit");
}

/** What goes over the wire: the ids and methods that were sent, the ids that were received. */
function tapped(reader, writer) {
  const sent = [];
  const received = [];
  const write = writer.write.bind(writer);
  writer.write = (message) => {
    sent.push({ id: message.id, method: message.method, params: message.params?.id });
    return write(message);
  };
  const listen = reader.listen.bind(reader);
  reader.listen = (callback) =>
    listen((message) => {
      received.push(message.id);
      callback(message);
    });
  return { sent, received };
}

// vscode-ws-jsonrpc, as web pages with an editor in them use it; the token goes by a subprotocol.
//
// Settings: `task` ("calls" or "cancels"), `url` as the server printed it, `slow`.

import { createWebSocketConnection, toSocket } from "vscode-ws-jsonrpc";
import { CancellationTokenSource } from "vscode-jsonrpc/node";
import { WebSocket } from "ws";
import {
  PREPARE,
  cancelUntilCancelled,
  closed,
  converse,
  opened,
  report,
  settings,
  settled,
  slowRequest,
  webSocketAddress,
} from "./conversation.mjs";

const address = webSocketAddress(settings.url);
const socket = new WebSocket(address.url, address.subprotocols);
await opened(socket);
const ended = closed(socket);
const quiet = { error() {}, warn() {}, info() {}, log() {} };
const connection = createWebSocketConnection(toSocket(socket), quiet);
connection.listen();

const call = (method, ...more) => connection.sendRequest(method, ...more);
const tasks = { calls: () => converse(call), cancels };
const seen = await tasks[settings.task]();
await call("shutdown");
await connection.sendNotification("exit");
report({ ...seen, subprotocol: socket.protocol, closeCode: await ended });

async function cancels() {
  const before = new CancellationTokenSource();
  // The library (with vscode-jsonrpc 8.2 inside) sends no cancel for a token that is first asked for when it is too late.
  const token = before.token;
  before.cancel();
  const already = await settled(call(PREPARE, slowRequest(), token));
  const during = await cancelUntilCancelled(call, () => {
    const source = new CancellationTokenSource();
    return { answer: call(PREPARE, slowRequest(), source.token), cancel: () => source.cancel() };
  });
  return { already, during };
}

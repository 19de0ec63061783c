// json-rpc-2.0 over a WebSocket, with batches; it has no cancellation of its own, so that its notification is sent by hand.
//
// Settings: `task` ("calls" or "cancels"), `url` as the server printed it, `slow`.

import { JSONRPCClient, createJSONRPCNotification, createJSONRPCRequest } from "json-rpc-2.0";
import { WebSocket } from "ws";
import {
  AGENT,
  CANDIDATES,
  PREPARE,
  cancelUntilCancelled,
  closed,
  converse,
  opened,
  report,
  settings,
  slowRequest,
  unknownReference,
  webSocketAddress,
} from "./conversation.mjs";

const address = webSocketAddress(settings.url);
const socket = new WebSocket(address.url, address.subprotocols);
await opened(socket);
const ended = closed(socket);
let lastId = 0;
const client = new JSONRPCClient((payload) => socket.send(JSON.stringify(payload)), () => ++lastId);
socket.on("message", (text) => client.receive(JSON.parse(text)));

const call = (method, params) => client.request(method, params);
const tasks = { calls, cancels };
const seen = await tasks[settings.task]();
const shutdown = await call("shutdown");
client.notify("exit");
report({ ...seen, shutdown, closeCode: await ended });

async function calls() {
  const conversation = await converse(call);
  const batch = await client.requestAdvanced([
    createJSONRPCRequest("first", CANDIDATES, { agentId: AGENT }),
    createJSONRPCNotification("sessionReferenceResolver/assembled", { agentId: AGENT, contextWindow: 200000 }),
    createJSONRPCRequest(1.5, PREPARE, unknownReference()),
    createJSONRPCRequest(-1, "no such method", []),
  ]);
  return { ...conversation, batch };
}

async function cancels() {
  const during = await cancelUntilCancelled(call, () => {
    const answer = call(PREPARE, slowRequest());
    const id = lastId;
    return { answer, cancel: () => client.notify("$/cancelRequest", { id }) };
  });
  return { during };
}

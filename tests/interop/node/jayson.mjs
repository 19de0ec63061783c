// jayson: over TCP, where each request has a connection of its own, and over HTTP with a bearer token.
//
// Settings: `task` ("calls" or "closes"), `tcp` (`{host, port}`) or `url` as the server printed it, `slow`.

import { get } from "node:http";
import jayson from "jayson";
import { AGENT, CANDIDATES, PREPARE, converse, failureOf, report, settings, slowRequest, unknownReference } from "./conversation.mjs";

const client = settings.tcp ? jayson.client.tcp(settings.tcp) : jayson.client.http(webOptions());
let connections = 0;
client.on("tcp socket", () => connections++);

const tasks = { calls, closes };
report(await tasks[settings.task]());

async function calls() {
  const conversation = await converse(call);
  const batch = await new Promise((resolve, reject) => {
    const requests = [
      client.request(CANDIDATES, { agentId: AGENT }, "first"),
      client.request("sessionReferenceResolver/assembled", { agentId: AGENT, contextWindow: 200000 }, null),
      client.request(PREPARE, unknownReference(), 7),
    ];
    client.request(requests, (error, answers) => (error ? reject(error) : resolve(answers)));
  });
  await new Promise((resolve, reject) => {
    client.request("sessionReferenceResolver/assembled", { agentId: AGENT }, null, (error) => (error ? reject(error) : resolve()));
  });
  const noSuchMethod = await failureOf(call("no such method", []));
  return { ...conversation, batch, noSuchMethod, connections };
}

/** Closing the HTTP request of a slow call is how it is cancelled; the counters of the server tell that it was. */
async function closes() {
  let request;
  client.once("http request", (made) => (request = made));
  const answer = failureOf(call(PREPARE, slowRequest()));
  let counters = await metrics();
  while (!/^sessionref_requests_in_flight [1-9]/m.test(counters)) {
    counters = await metrics();
  }
  request.destroy();
  await answer;
  while (!/^sessionref_requests_in_flight 0/m.test(counters)) {
    counters = await metrics();
  }
  return { counters };
}

function call(method, params) {
  return new Promise((resolve, reject) => {
    client.request(method, params, (error, failure, result) => (error ?? failure ? reject(error ?? failure) : resolve(result)));
  });
}

function webOptions() {
  const url = new URL(settings.url);
  const token = new URLSearchParams(url.hash.slice(1)).get("token");
  return { host: url.hostname, port: url.port, path: "/rpc", headers: { Authorization: `Bearer ${token}` } };
}

async function metrics() {
  const { host, port, headers } = webOptions();
  return new Promise((resolve, reject) => {
    const request = get({ host, port, headers, path: "/metrics" }, async (response) => {
      response.setEncoding("utf8");
      let text = "";
      for await (const part of response) {
        text += part;
      }
      resolve(text);
    });
    request.on("error", reject);
  });
}
